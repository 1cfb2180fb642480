"""Writes what a person says about a finding, as `telemetry-lake findings` does, and prints its commands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from typing import TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError

from kafka_telemetry_lake.pipelines.findings.remarks import remark, summary
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError
from kafka_telemetry_lake.udfs.findings.remarks import MUTED, end_of_mute, remark_text

Value = TypeVar("Value")
ALLOWED = "TELEMETRY_LAKE_ALLOW_CHANGES"


class RemarkError(TelemetryLakeError):
    """Nothing was written; the message says why, in one line."""


def changes_allowed() -> bool:
    """Whether `telemetry-lake dashboard` was started with --allow-changes."""
    return os.environ.get(ALLOWED) == "1"


def say(lake: str, finding_id: str, change: str, texts: Mapping[str, str], now: int) -> str:
    """Write a remark; returns a line about it.

    Args:
        change: one of `REMARKS`.
        texts: as typed: `by`, `why`, and `until` for a mute.
        now: µs.

    Raises:
        RemarkError: a text is missing or wrong, the finding's state doesn't fit, or the lake can't be written.
    """
    if not changes_allowed():
        raise RemarkError("this dashboard only reads: start it with --allow-changes")
    by, why = (_read(name, remark_text, texts) for name in ("by", "why"))
    until = _read("until", end_of_mute, texts) if change == MUTED else None
    try:
        return summary(remark(lake, finding_id, change, now, by, why, until))
    except TelemetryLakeError as error:
        raise RemarkError(str(error)) from error
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise RemarkError(f"the lake can't be written: {' '.join(str(error).split())}") from error


def _read(name: str, read: Callable[[str], Value], texts: Mapping[str, str]) -> Value:
    try:
        return read(texts[name])
    except ValueError as error:
        raise RemarkError(f"{name}: {error}") from error


def commands(lake: str, finding_id: str, state: str, until: str) -> list[str]:
    """The commands that acknowledge, mute and, if it is muted, unmute a finding.

    They refuse to run until a reason is written between the last quotes.

    Args:
        until: when the mute ends, unless it is edited.
    """
    start = f"telemetry-lake findings --lake {shlex.quote(lake)}"
    who = '--by "$USER" --why ""'
    identity = shlex.quote(finding_id)
    lines = [f"{start} --acknowledge {identity} {who}", f"{start} --mute {identity} --until {until} {who}"]
    if state == MUTED:
        lines.append(f"{start} --unmute {identity} {who}")
    return lines
