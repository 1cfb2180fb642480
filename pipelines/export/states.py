"""What is so now, as the lake's views say it: open findings, quotas, and how many clients are active or silent."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_telemetry_lake.pipelines.export.measures import LONGEST_LABEL, OTHER, PREFIX, REST
from kafka_telemetry_lake.pipelines.query.lake_query import run_query

Samples = list[tuple[dict[str, str], float]]


@dataclass(frozen=True)
class State:
    """A gauge over a view.

    Attributes:
        sql: SELECT of labels and, last, of the value.
        kept: labels that the sum of the rest has too.
        rest: how the values beyond the first N become one: sum, max, or none: they are left out.
        first: the greatest or the least values come first.
    """

    name: str
    meaning: str
    sql: str
    kept: Sequence[str] = ()
    rest: str = "sum"
    first: str = "greatest"


_CLIENTS = "SELECT cluster_id, {labels}, state, count(*) FROM clients GROUP BY ALL"
_QUOTA = 'cluster_id, quota_type, "user", client_id, CAST(broker_id AS VARCHAR) AS broker_id'
STATES = (
    State(
        "clients", "Client instances by state: active, terminated or silent",
        "SELECT cluster_id, state, count(*) FROM clients GROUP BY ALL", ("cluster_id", "state"),
    ),
    State(
        "application_clients", "Client instances of an application by state", _CLIENTS.format(labels="application"),
        ("state",),
    ),
    State(
        "software_clients", "Client instances of a library and version by state",
        _CLIENTS.format(
            labels="client_software_name AS software_name, client_software_version AS software_version"
        ),
        ("state",),
    ),
    State(
        "open_findings", "Findings that aren't resolved, by severity, owner and state: open, acknowledged or muted",
        "SELECT cluster_id, severity, owner, state, count(*) FROM open_findings GROUP BY ALL", ("severity", "state"),
    ),
    State(
        "open_findings_by_rule", "Findings that aren't resolved, by their rule",
        "SELECT cluster_id, finding, severity, state, count(*) FROM open_findings GROUP BY ALL", ("severity", "state"),
    ),
    State(
        "quota_used_ratio", "Used part of a quota on a broker in the newest window of 10 s",
        f"SELECT {_QUOTA}, used_percent / 100 FROM quota_headroom WHERE used_percent IS NOT NULL",
        ("quota_type",), "max",
    ),
    State(
        "quota_headroom_bytes_per_second", "What is left of a byte quota on a broker",
        f"SELECT {_QUOTA}, headroom FROM quota_headroom "
        "WHERE headroom IS NOT NULL AND quota_type IN ('produce', 'fetch')",
        rest="none", first="least",
    ),
    State(
        "quota_throttled_entities", "Entities that a broker throttles now, once for each broker",
        "SELECT cluster_id, quota_type, count_if(throttled) FROM quota_headroom GROUP BY ALL",
        ("cluster_id", "quota_type"),
    ),
)  # fmt: skip


def states(lake: str, top: int) -> Iterator[tuple[str, str, Samples]]:
    """Name, meaning and samples of each gauge.

    Raises:
        QueryError: the lake can't be read.
    """
    for each in STATES:
        answer = run_query(lake, each.sql).read_all()
        names = ["cluster_id", *answer.column_names[1:-1]]
        rows = zip(*(column.to_pylist() for column in answer.columns), strict=True)
        yield f"{PREFIX}_{each.name}", each.meaning, _first(each, names, rows, top)


def _first(state: State, names: Sequence[str], rows: Iterable[tuple[Any, ...]], top: int) -> Samples:
    """The first rows as samples, and the rest added up. Equal label sets, after cutting, are one."""
    is_sum = state.rest == "sum"
    merged: dict[tuple[str, ...], float] = {}
    for *labels, value in rows:
        key = tuple("" if label is None else str(label)[:LONGEST_LABEL] for label in labels)
        if key in merged:
            merged[key] = merged[key] + value if is_sum else max(merged[key], value)
        else:
            merged[key] = float(value)
    sign = -1 if state.first == "greatest" else 1
    own = heapq.nsmallest(top, merged.items(), key=lambda item: (sign * item[1], item[0]))
    samples = [({name: label for name, label in zip(names, key, strict=True) if label}, value) for key, value in own]
    rest: dict[tuple[str, ...], float] = {}
    if state.rest != "none":
        shown = {key for key, _ in own}
        for key, value in merged.items():
            if key not in shown:
                kept = tuple(label for name, label in zip(names, key, strict=True) if name in state.kept)
                rest[kept] = rest.get(kept, 0) + value if is_sum else max(rest.get(kept, value), value)
    kept_names = [name for name in names if name in state.kept]
    gone = {name: OTHER for name in names if name not in state.kept} | {REST: "true"}
    for kept, value in rest.items():
        samples.append((gone | {name: label for name, label in zip(kept_names, kept, strict=True) if label}, value))
    return samples
