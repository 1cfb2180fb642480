"""Hostile clients beside good ones, as ``make soak`` has them for longer: bounded, named, and nobody else's problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak_attacks import WAYS
from benchmarks.soak_hostile import hostile

pytestmark = pytest.mark.slow


def test_good_clients_numbers_stay_exact_beside_hostile_ones(tmp_path: Path) -> None:
    found = hostile(tmp_path, minutes=0)
    assert (found["lost"], found["doubled"], found["problems"], found["good_points_exact"]) == (0, 0, 0, True)
    assert found["ways"].keys() == WAYS.keys()
    assert found["rejected"] > 0
