"""What the pages ask of a lake, and whether it answers by the pushes that it keeps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kafka_telemetry_lake.dashboards.kept_pushes import KeptPushes
from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.dashboards.pushed import PushedInstances


def note_questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all questions and views that are asked from now on, in order; a list that grows."""
    asked = list[str]()
    run = LakeReader.run

    def noted(own: LakeReader, name: str, *others: Any, **more: Any) -> pa.Table:
        asked.append(name)
        return run(own, name, *others, **more)

    monkeypatch.setattr(LakeReader, "run", noted)
    for name in ("totals", "instances"):
        answer = getattr(PushedInstances, name)

        def of_kept(own: PushedInstances, name: str = name, answer: Any = answer) -> pa.Table:
            asked.append(name)
            return answer(own)

        monkeypatch.setattr(PushedInstances, name, of_kept)
    return asked


def keep_no_pushes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lakes have more pushes than they keep."""
    monkeypatch.setattr(KeptPushes, "between", lambda *_: None)
    monkeypatch.setattr(KeptPushes, "keeps", lambda *_: False)
