"""A file of a user's that can't be read is one line with its path, whichever command reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.applications.aliases import read_aliases
from kafka_telemetry_lake.pipelines.applications.costs import read_prices
from kafka_telemetry_lake.pipelines.findings.overrides import read_overrides
from kafka_telemetry_lake.pipelines.notify.file import read_notify_file
from kafka_telemetry_lake.pipelines.subscriptions.file import read_subscriptions_file
from kafka_telemetry_lake.udfs.errors import CannotRunError

READERS: dict[str, Callable[[Path], object]] = {
    "aliases": read_aliases,
    "prices": read_prices,
    "overrides": read_overrides,
    "subscriptions": lambda path: read_subscriptions_file(path, "c"),
    "notify": read_notify_file,
}
CONTENTS = {
    "a list that isn't closed": b"[",
    "not UTF-8": b"\xff",
    "a day that no month has": b"a: 2026-13-01",
    "a number of thousands of digits": b"a: " + b"1" * 5000,
    "deep": b"[" * 2000,
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_it_is_one_line(read: Callable[[Path], object], content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file.yml"
    file.write_bytes(content)
    with pytest.raises(CannotRunError) as error:
        read(file)
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"{file}: ")


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_one_that_is_not_there(read: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(CannotRunError, match=r"none.yml: No such file or directory$"):
        read(tmp_path / "none.yml")
