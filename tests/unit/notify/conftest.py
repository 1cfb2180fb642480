"""A lake with findings, and a server that takes messages about them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.notify.changed_findings import HttpSink, http_sink, make_lake


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return make_lake(tmp_path)


@pytest.fixture
def sink() -> Iterator[HttpSink]:
    with http_sink() as found:
        yield found
