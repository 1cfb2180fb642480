"""A local session uses the archive of classes if there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.runtime import session
from kafka_telemetry_lake.pipelines.runtime.spark_settings import QUIET_ARCHIVE


def test_the_archive_is_an_option_of_the_jvm_only_if_it_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEMETRY_LAKE_JARS", str(tmp_path))
    assert session._archive_options() == ()
    session.class_archive().touch()
    assert session._archive_options() == (f"-XX:SharedArchiveFile={session.class_archive()}", *QUIET_ARCHIVE)
