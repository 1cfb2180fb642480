"""The dashboard, but one question never ends by itself: python -m tests.dashboard.slow_dashboard <question> <flags>."""

from __future__ import annotations

import sys
from functools import partialmethod
from typing import Any

import pytest

from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.jobs import dashboard
from kafka_telemetry_lake.jobs.cli import main
from tests.support.asked_questions import keep_no_pushes

ASKED, ENDED = "slow question: asked", "slow question: ended"  # what it prints
ENDLESS = "SELECT count(*) AS n FROM range(1_000_000_000_000) AS a(x) WHERE hash(x) = 7"
_run = LakeReader.run


def slow_run(
    lake: LakeReader, slow: str, name: str, sql: str, reads: Any, values: Any, *others: Any, **options: Any
) -> Any:
    if name != slow:
        return _run(lake, name, sql, reads, values, *others, **options)
    print(ASKED, flush=True)
    try:
        return _run(lake, name, ENDLESS, reads, {}, *others, **options)
    finally:
        print(ENDED, flush=True)


if __name__ == "__main__":
    _, question, *flags = sys.argv
    vars(dashboard)["begin_to_prepare"] = lambda _: None  # the slow question would never end
    keep_no_pushes(pytest.MonkeyPatch())  # then questions count and list the clients
    LakeReader.run = partialmethod(slow_run, question)  # type: ignore[assignment]  # the server runs in this process
    sys.exit(main(["dashboard", *flags]))
