"""Fixtures of what happens to a lake while a process works on it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_telemetry_lake.pipelines.lake.log_files import LogFiles

Overtaken = Callable[[Callable[[], object]], None]


@pytest.fixture
def overtaken(monkeypatch: pytest.MonkeyPatch) -> Overtaken:
    """Let something happen between the next commit's look at the log and its writing."""

    def by(happens: Callable[[], object]) -> None:
        add = LogFiles.add

        def late(files: LogFiles, version: int, actions: list[dict[str, object]]) -> bool:
            monkeypatch.setattr(LogFiles, "add", add)
            happens()
            return add(files, version, actions)

        monkeypatch.setattr(LogFiles, "add", late)

    return by
