"""Kafka Streams, Connect, a share group and transactions on a real broker: the views say what each of them counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.kinds import capture, check, lake_of


@pytest.mark.slow
def test_views_per_kind_say_what_running_clients_counted(tmp_path: Path) -> None:
    records, truth = capture()
    check(lake_of(tmp_path / "lake", records), truth)
