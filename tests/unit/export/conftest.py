"""Closes what tests of exports leave open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.export.made_lake import OPENED


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()
