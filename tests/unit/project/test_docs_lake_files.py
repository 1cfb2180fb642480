"""docs/storage.md lists every file of a lake outside Delta's tables. The lake of all commands: test_expired_logs.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.earlier_lake import EarlierLake
from tests.support.lake_files import listed, undescribed


@pytest.mark.parametrize("name", ["five-queries", "quota-query"])
def test_every_file_of_a_lake_is_described(tmp_path: Path, name: str) -> None:
    lake = EarlierLake(name, tmp_path).path
    assert undescribed(lake) == []
    for other in ("_something.json", "pushes/_something.json", "_checkpoints/something.json"):
        (lake / other).touch()
    assert undescribed(lake) == ["_checkpoints/something.json", "_something.json", "pushes/_something.json"]


def test_no_file_is_listed_twice() -> None:
    assert len(listed()) == len(set(listed())) > 20
