"""Which rows of a table are those of an erased client or principal, and what of it other rows mention.

The rules follow the columns that a table has, so a new table with the same columns needs none of its own:

- A row of its client instances goes, and one of its principals or users.
- A row without a client instance goes if its client id, address or group member is only theirs: rollups, quota usage,
  group members. A client id that other instances have is an aggregate of them, and stays.
- In other rows, texts that mention it are replaced, and columns that name it become NULL.
- The rules of applications are regular expressions: a mention in one is replaced too, however its signs are escaped. A
  condition never becomes NULL, as its rule would fit more clients then.
- The price list is about topics and zones, whatever their names; brokers aren't persons.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property, reduce
from ipaddress import ip_address
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.pipelines.applications.aliases import comparable
from kafka_telemetry_lake.pipelines.forget.subject import Subject
from kafka_telemetry_lake.pipelines.lake.stored_pushes import IDENTITY
from kafka_telemetry_lake.pipelines.tables.costs import BROKERS, PRICES
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from kafka_telemetry_lake.pipelines.tables.lifecycle import APPLICATION_RULES, CLIENT_ALIASES, CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import (
    CLIENT_EVENTS,
    METRIC_POINTS,
    PUSH_OUTCOMES,
    PUSHES,
    QUARANTINE,
    QUOTA_REPORTS,
)
from kafka_telemetry_lake.pipelines.tables.quality import QUALITY_RESULTS
from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.udfs.kernels.arrays import one_chunk

FORGOTTEN = "(forgotten)"
ID, CLUSTER = "client_instance_id", "cluster_id"
# Tables whose rows of other clients can name one: columns that become NULL, and texts in which it is replaced.
MENTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    CLIENT_CHANGES.name: (("client_id", "principal", "client_address"), ()),
    CLIENT_EVENTS.name: (("client_id",), ("detail",)),
    FINDING_CHANGES.name: (("principal", "worst_instance", "by", "owner"), ("evidence", "advice", "why")),
    QUALITY_RESULTS.name: ((), ("examples",)),
    SUBSCRIPTIONS.name: ((), ("match", "problem")),
    CLIENT_ALIASES.name: (("owner",), ()),
    APPLICATION_RULES.name: (("owner",), ("client_id", "principal")),
}
HOST = ("address_first", "address_last")  # of the network of a rule: the same, if it is one address
# Tables that name no client.
IMPERSONAL = (PRICES.name, BROKERS.name)
PATTERN_TEXTS = 500  # in one regular expression
# Tables in which a row of another client may have the principal: whose rows are about the client, not the push.
ABOUT_CLIENTS = (CLIENT_CHANGES.name, FINDING_CHANGES.name)
# Tables in which a row is of one push, whoever's client instance id it names.
OF_PUSHES = tuple(table.name for table in (PUSHES, QUARANTINE, PUSH_OUTCOMES, METRIC_POINTS, QUOTA_REPORTS))


class Rows:
    """Selects and changes the rows of one table.

    Args:
        table: its name.
        names: the columns of a file.
    """

    def __init__(self, subject: Subject, table: str, names: Sequence[str]) -> None:
        self._subject, self._table, self._names = subject, table, set(names)
        self._may_be_escaped = table == APPLICATION_RULES.name
        blanked, texts = MENTIONS.get(table, ((), ()))
        self._blanked, self._texts = (sorted(self._names & set(columns)) for columns in (blanked, texts))

    @cached_property
    def columns(self) -> list[str]:
        """The columns that the rules read."""
        wanted = {column for column, _ in self._rules} | {ID, CLUSTER, "client_id", "client_address"}
        wanted |= {*self._blanked, *self._texts, *HOST}
        if self._table in OF_PUSHES and self._subject.pushes:
            wanted |= set(IDENTITY)
        return sorted(wanted & self._names)

    @cached_property
    def _rules(self) -> list[tuple[str, frozenset[Any]]]:
        """Columns, each with the values of which a row goes."""
        if self._table in IMPERSONAL:
            return []
        subject = self._subject
        rules: list[tuple[str, frozenset[Any]]] = [(ID, subject.instances), ("user", subject.users)]
        rules += [("member_id", subject.members), ("host", subject.addresses), ("ip", subject.addresses)]
        rules += [("subject", subject.texts)]
        if self._table not in ABOUT_CLIENTS:
            rules += [("principal", subject.principals)]
        rules += [("client_attributes_id", subject.attributes)] if self._table != PUSH_OUTCOMES.name else []
        return [(column, values) for column, values in rules if column in self._names and values]

    def erased(self, rows: pa.Table) -> pa.ChunkedArray:
        """A boolean for each row: whether it goes."""
        masks = [pc.is_in(rows[column], _value_set(rows, column, values)) for column, values in self._rules]
        for column, values in (("client_id", self._subject.client_ids), ("client_address", self._subject.addresses)):
            if column in self._names and values:
                only = pc.is_in(rows[column], _value_set(rows, column, values))
                masks.append(pc.and_(only, pc.is_null(rows[ID])) if ID in self._names else only)
        if self._table in OF_PUSHES and self._subject.pushes:
            masks.append(self._foreign(rows))
        if self._names >= {*HOST}:
            first, last = (rows[column] for column in HOST)
            is_theirs = pc.is_in(first, _value_set(rows, HOST[0], self._hosts))
            masks.append(pc.and_(is_theirs, pc.fill_null(pc.equal(first, last), False)))
        return pc.and_(reduce(pc.or_, masks, _all(rows, False)), self._in_cluster(rows, unknown=False))

    @cached_property
    def _hosts(self) -> set[str]:
        """The subject's addresses as rules of applications have them: not pseudonyms."""
        found = set()
        for text in self._subject.addresses:
            with suppress(ValueError):
                found.add(comparable(ip_address(text)))
        return found

    def without_mentions(self, rows: pa.Table) -> tuple[pa.Table, int]:
        """The rows without mentions of the subject, and in how many there was one."""
        here = self._in_cluster(rows, unknown=True)
        changed = _all(rows, False)
        for column in self._blanked:
            mask = pc.and_(pc.is_in(rows[column], _value_set(rows, column, self._subject.texts)), here)
            changed = pc.or_(changed, mask)
            rows = _with(rows, column, pc.if_else(mask, None, rows[column]))
        for column in self._texts:
            before = rows[column]
            if not self._may_mention(before):
                continue
            values = before.to_pylist()
            after = [
                replaced(value, self._patterns) if in_it else value
                for value, in_it in zip(values, here.to_pylist(), strict=True)
            ]
            changed = pc.or_(changed, pa.array([a != b for a, b in zip(values, after, strict=True)], pa.bool_()))
            rows = _with(rows, column, pa.chunked_array([pa.array(after, before.type)]))
        return rows, pc.sum(changed).as_py() or 0

    def _may_mention(self, values: pa.ChunkedArray) -> bool:
        """Whether a text of the column has one of the subject's, even as a part of a longer name."""
        while not pa.types.is_string(values.type):
            values = (
                pa.chunked_array([one_chunk(values).flatten()]) if pa.types.is_list(values.type) else _of_map(values)
            )
        written = _escaped_or_not if self._may_be_escaped else re.escape
        return any(
            pc.any(pc.match_substring_regex(values, "|".join(map(written, part)))).as_py()
            for part in _parts(self._subject.texts)
        )

    def _in_cluster(self, rows: pa.Table, *, unknown: bool) -> pa.ChunkedArray:
        """Whether a row is of the cluster that is asked for.

        Args:
            unknown: the answer for a row that names no cluster, if one is asked for.
        """
        if self._subject.cluster_id is None:
            return _all(rows, True)
        if CLUSTER not in self._names:
            return _all(rows, unknown)
        return pc.fill_null(pc.equal(rows[CLUSTER], self._subject.cluster_id), unknown)

    def _foreign(self, rows: pa.Table) -> pa.ChunkedArray:
        identities = self._subject.pushes
        place = IDENTITY.index("offset")
        mask = pc.is_in(rows["offset"], pa.array({each[place] for each in identities}, rows["offset"].type)).to_pylist()
        near = [number for number, is_near in enumerate(mask) if is_near]
        if near:
            taken = rows.take(pa.array(near)).select(list(IDENTITY))
            taken = _with(
                taken, "landed_at", pc.cast(pc.cast(taken["landed_at"], pa.timestamp("us", "UTC")), pa.int64())
            )
            for number, row in zip(near, taken.to_pylist(), strict=True):
                mask[number] = tuple(row.values()) in identities
        return pa.chunked_array([pa.array(mask, pa.bool_())])

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return patterns(self._subject.texts, self._may_be_escaped)


def patterns(texts: Iterable[str], may_be_escaped: bool = False) -> list[re.Pattern[str]]:
    """Regular expressions that find the texts, but not as a part of a longer name.

    Args:
        may_be_escaped: they stand in regular expressions, which may write ``.`` as ``\\.`` or ``[.]``.
    """
    before, after = r"(?<![\w-])(?<!\w\.)", r"(?!\w|[.-]\w)"
    written = _escaped_or_not if may_be_escaped else re.escape
    if may_be_escaped:
        before += r"(?<!\w\\\.)(?<!\w\[[.-]\])"
        after = r"(?!\w|\\?[.-]\w|\[[.-]\]\w)"
    return [re.compile(f"{before}(?:{'|'.join(map(written, part))}){after}") for part in _parts(texts)]


def _escaped_or_not(text: str) -> str:
    """A regular expression that finds a text as it is, or as a regular expression writes it."""
    return re.sub(r"\W", lambda sign: rf"(?:\\?{re.escape(sign[0])}|\[{re.escape(sign[0])}\])", text)


def _parts(texts: Iterable[str]) -> list[list[str]]:
    longest_first = sorted(texts, key=lambda text: (-len(text), text))
    return [longest_first[at : at + PATTERN_TEXTS] for at in range(0, len(longest_first), PATTERN_TEXTS)]


def replaced(value: Any, texts: Sequence[re.Pattern[str]]) -> Any:
    """A text, or the texts of a list, dict or pair, without what the patterns find."""
    if isinstance(value, str):
        for pattern in texts:
            value = pattern.sub(FORGOTTEN, value)
        return value
    if isinstance(value, dict):
        return {replaced(key, texts): replaced(each, texts) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(replaced(each, texts) for each in value)
    return value


def _all(rows: pa.Table, value: bool) -> pa.ChunkedArray:
    return pa.chunked_array([pa.repeat(pa.scalar(value), rows.num_rows)])


def _of_map(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Keys and values of a column of maps."""
    maps = one_chunk(values)
    return pa.chunked_array([maps.keys, maps.items])


def _with(rows: pa.Table, column: str, values: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(
        rows.schema.get_field_index(column), rows.schema.field(column).with_type(values.type), values
    )


def _value_set(rows: pa.Table, column: str, values: Iterable[Any]) -> pa.Array:
    return pa.array(values, rows.schema.field(column).type)
