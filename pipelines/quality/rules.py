"""The data quality rules of `sql/quality/rules.yml`, which says what a rule consists of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_telemetry_lake.pipelines.sql_text import filled, sql_yaml
from kafka_telemetry_lake.udfs.conversion.point_rows import INCREMENT_STATUSES, KINDS, STATUSES
from kafka_telemetry_lake.udfs.rows import PUSH_KEY

KEYS = [field.name for field in PUSH_KEY]


@dataclass(frozen=True)
class Rule:
    """A data quality rule of a table; `sql/quality/rules.yml` says what each field is."""

    name: str
    table: str
    says: str
    do: str
    breaks: str = ""
    select: str = ""
    reads: tuple[str, ...] = ()
    in_batch: tuple[str, ...] = ()
    one_sided: bool = False
    open_from: str = ""
    across: str = ""
    at_once: bool = False

    @property
    def sentence(self) -> str:
        """`says` with a capital first letter, unless it starts with a column name."""
        return self.says if "_" in self.says.split()[0] else self.says[0].upper() + self.says[1:]

    def broken_in_batch(self, counts: Mapping[str, int]) -> int:
        """How many rows of a micro-batch break it, from the summed counts of its tasks."""
        first, *others = (counts.get(name, 0) for name in self.in_batch or ("",))
        more = first - sum(others)
        return max(0, more) if self.one_sided else abs(more)


def _same(names: Iterable[str]) -> str:
    return " AND ".join(f'a."{name}" IS NOT DISTINCT FROM b."{name}"' for name in names)


def _markers(reads: tuple[str, ...]) -> dict[str, str]:
    """What stands for the markers in a rule that reads these tables."""
    key, same = ", ".join(f'"{name}"' for name in KEYS), _same(KEYS)  # offsets start again when a topic is recreated
    statuses = [repr(status) for status in STATUSES.to_pylist()]
    # The landed date is still within the retention of the table that is read.
    retained = f"coalesce(a.landed_date >= (SELECT landed_date FROM first_days WHERE table_name = '{reads[0]}'), TRUE)"
    return {
        "key": key,
        "same": same,
        "same_partition": _same(("source", "cluster_id", "topic", "partition")),
        "retained": retained,
        # Rows whose push isn't in table `pushes`.
        "without_push": f"SELECT DISTINCT {key} FROM added AS a ANTI JOIN pushes AS b ON {same} WHERE {retained}",
        "unjudged": f"SELECT * FROM pushes AS a ANTI JOIN push_outcomes AS b ON {same}",
        "grace": "INTERVAL 10 MINUTE",  # one stream follows another within a batch or two
        "statuses": ", ".join(statuses),
        "counted": ", ".join(statuses[: INCREMENT_STATUSES + 1]),
        "kinds": ", ".join(map(repr, KINDS.to_pylist())),
        "replay": "run `telemetry-lake replay` to recreate its rows",
        "report": "this is a bug: report it with the rows named here",
    }


def _rules() -> Iterable[Rule]:
    for name, given in sql_yaml("quality", "rules.yml").items():
        reads, in_batch = (tuple(given.pop(key, ())) for key in ("reads", "in_batch"))
        markers = _markers(reads or ("",))
        texts: dict[str, Any] = {
            key: filled(value, markers) if isinstance(value, str) else value for key, value in given.items()
        }
        yield Rule(name, **texts, reads=reads, in_batch=in_batch)


RULES = tuple(_rules())


def tables_with_rules() -> list[str]:
    """Tables in the order of checking: one whose rows are written later comes first."""
    order = ("push_outcomes", "metric_points", "quarantine")
    return [*order, *dict.fromkeys(rule.table for rule in RULES if rule.table not in order)]
