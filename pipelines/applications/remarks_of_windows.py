"""What a reader must know of a comparison of windows: sentences, each without its period."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from kafka_telemetry_lake.pipelines.applications.compared_windows import HOURS, Windows
from kafka_telemetry_lake.udfs.before_after import CHANGED, UNCHANGED, Judged
from kafka_telemetry_lake.udfs.kernels.arrays import Int64s

MOST_CHANGES, MOST_GAPS = 6, 3
KINDS = {
    "first_seen": "{of} began",
    "new_version": "{of} changed the version ({before} to {after})",
    "started": "{of} started instances",
    "ended": "instances of {of} ended",
    "quota": "the quota of {of} changed ({before} to {after})",
    "subscription": "the subscription of {of} changed ({before} to {after})",
}
Rows = Sequence[Mapping[str, Any]]


def what_was_compared(windows: Windows, asked_s: int, at: datetime) -> Iterator[str]:
    begin, moment = windows.of.at(windows.starts()[1]), windows.of.at(windows.after)
    yield f"{length(windows.seconds)} before and after {time_text(at)} are compared"
    yield (
        f"{windows.earlier:,} windows from {time_text(windows.of.at(windows.first))} on say how much measures differ "
        "from window to window without a cause"
    )
    if windows.seconds < asked_s:
        yield (
            f"{length(asked_s)} were asked for, but less is recorded or fits: from {time_text(begin)} to "
            f"{time_text(windows.of.at(windows.end))}"
        )
    if windows.after != windows.before:
        name = "hour" if windows.of is HOURS else "minute"
        yield f"the {name} of the moment itself counts for neither; after it is from {time_text(moment)} on"


def of_chance(judged: Judged) -> Iterator[str]:
    """How many measures would be named though nothing happened, at most (B3)."""
    compared = np.array([status in (CHANGED, UNCHANGED) for status in judged.status], bool)
    if not compared.any():
        return
    expected = float(judged.chance[compared].sum())
    changed = judged.status.count(CHANGED)
    yield (
        f"{changed:,} of {int(compared.sum()):,} measures changed beyond their noise. If nothing had happened, it "
        f"would be {expected:.1f} at most, on average: those with the least effect may be chance"
    )


def of_valueless(measures: int) -> Iterator[str]:
    """How many measures aren't told of, since they have no value in any window (B1)."""
    if measures:
        has = "measure has" if measures == 1 else "measures have"
        yield f"{measures:,} {has} no value in any window, such as a counter of which only the total is known"


def of_clients(client_ids: Mapping[str, Any], pushed: Rows) -> Iterator[str]:
    """Whom the measures are of."""
    if client_ids["shared"]:
        others = f" and {client_ids['shared'] - 1:,} more" if client_ids["shared"] > 1 else ""
        yield (
            f"other applications use client id {client_ids['shared_one']}{others} too: rollups are by client id, so "
            "their clients are in the measures"
        )
    of = {row["is_after"]: row for row in pushed}
    before, after = (of.get(is_after, {"instances": 0, "pushes": 0, "lost": 0}) for is_after in (False, True))
    if before["instances"] != after["instances"]:
        yield (
            f"{instances(before['instances'])} pushed before, {after['instances']:,} after: rates are those of one "
            "series, so their sum changed by that, too"
        )
    if before["lost"] or after["lost"]:
        yield f"pushes are missing: {before['lost']:,} intervals before, {after['lost']:,} after"


def of_changes(changes: Rows) -> Iterator[str]:
    """What else happened in the two windows: any of it may be the cause."""
    said = []
    for row in changes[:MOST_CHANGES]:
        more = f" and {row['client_ids'] - 1:,} more" if row["client_ids"] > 1 else ""
        words = {name: row[name] or "unknown" for name in ("before", "after")} | {"of": f"{row['client_id']}{more}"}
        text = KINDS.get(row["change"], "{of} changed").format(**words)
        said.append(f"{time_text(row['first'])} {text}")
    if said:
        more = f"; and {len(changes) - len(said)} more kinds" if len(changes) > len(said) else ""
        yield f"known changes in this time: {'; '.join(said)}{more}"


def of_missing(windows: Windows, missing: Int64s) -> Iterator[str]:
    """When nobody pushed (B5)."""
    near = missing[missing >= windows.starts()[1]]
    if len(near):
        cuts = np.flatnonzero(np.diff(near) > 1) + 1
        spans = [(int(part[0]), int(part[-1]) + 1) for part in np.split(near, cuts)]
        texts = [f"{time_text(windows.of.at(a))} to {time_text(windows.of.at(b))}" for a, b in spans[:MOST_GAPS]]
        more = f", and {len(spans) - MOST_GAPS:,} times more" if len(spans) > MOST_GAPS else ""
        yield f"nobody pushed from {', '.join(texts)}{more}: what is missing is left out, not interpolated"
    if earlier := len(missing) - len(near):
        yield f"nobody pushed for {length(earlier * windows.of.bin_s)} of the windows further back"


def length(seconds: int) -> str:
    """A whole number of minutes, or of hours."""
    hours, rest = divmod(seconds, 3600)
    return f"{seconds // 60:,} min" if rest else f"{hours:,} h"


def instances(count: int) -> str:
    return f"{count:,} instance{'' if count == 1 else 's'}"


def time_text(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
