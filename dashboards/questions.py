"""The pages' queries, called questions: one file of `sql/dashboard/` each, in Spark's dialect, with named parameters.

A question may read any table and view of the lake, and two relations that its caller supplies: ``chosen`` (the client
instances that pass the filters, rows of `instances.sql`) and ``rollups`` (these clients' increases in each window,
from one of the `_rollups_*.sql`). A panel shows the SQL of its question as text for `telemetry-lake query`.

At the end are the metrics that the pages ask for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Literal

import sqlglot
from sqlglot import exp

from kafka_telemetry_lake.dashboards.address import FILTERS, OWNED, Selection

CHOSEN, ROLLUPS = "chosen", "rollups"
# The clusters and client ids of the chosen instances, each once: a million instances have a few thousand of them.
CHOSEN_IDS = "chosen_ids"
Parameter = datetime | str | int | list[str]
Grain = Literal["points", "minutes", "hours", "windows"]
# Limit of answers whose SQL has none: invented client ids must not overload the browser.
MOST_ROWS = 10_000
MOST_INSTANCES = 1_000_000
# Questions whose answers aren't shown as they are; what is made of them is limited.
MOST = {
    "instances": MOST_INSTANCES,
    "instances_by_id": MOST_INSTANCES,
    "instances_by_client_id": MOST_INSTANCES,
    "client_ids_of_software": MOST_INSTANCES,
    "client_ids": MOST_INSTANCES,
    "client_windows": 10_000_000,
    "topic_use": MOST_INSTANCES,
}
# Questions whose rollups may be the answer to `client_windows`: they sum up by client id, metric and the same windows.
OF_WINDOWS = ("metric_over_time", "metric_by_client", "groups", "changes")
FOLDER = files("kafka_telemetry_lake.sql") / "dashboard"


@dataclass(frozen=True)
class Question:
    """A question: its SELECT in DuckDB's dialect, and the tables, views and parameters that it refers to.

    Attributes:
        pretty: the SELECT as text for people, without the limit of `most`.
        most: rows to show; the SELECT returns one row more if there are more rows. None: parameter ``top`` is the
            limit.
    """

    name: str
    duckdb: str
    pretty: str
    reads: frozenset[str]
    parameters: frozenset[str]
    most: int | None

    @property
    def is_about_chosen(self) -> bool:
        """Whether it reads relation ``chosen``."""
        return not self.reads.isdisjoint((CHOSEN, CHOSEN_IDS))


def names() -> list[str]:
    """Names of all questions; files that begin with an underscore are helpers."""
    stems = (file.name.removesuffix(".sql") for file in FOLDER.iterdir() if file.name.endswith(".sql"))
    return sorted(name for name in stems if not name.startswith("_"))


@cache
def in_words(name: str) -> str:
    """What a question asks: the first sentence of its file."""
    comments = (FOLDER / f"{name}.sql").read_text("utf-8").splitlines()
    text = " ".join(line.removeprefix("--").strip() for line in comments if line.startswith("--"))
    return first_sentence(text)


def first_sentence(text: str) -> str:
    """The first sentence of a comment, which is the question that it answers."""
    return f"{text.partition('?')[0]}?"


@cache
def question(name: str, grain: Grain = "minutes", everybody: bool = False, listed: bool = False) -> Question:
    """A question by name, with rollups of this grain if it reads rollups.

    Args:
        grain: "windows": its caller supplies ``rollups``, such as the answer to question `client_windows`.
        everybody: it is about all clients, not about those in ``chosen``.
        listed: ``chosen`` has all of these; otherwise the question looks for them itself.
    """
    tree = _select(name)
    if grain != "windows" and _reads(tree, ROLLUPS):
        _put_first(tree, ROLLUPS, _select(f"_rollups_{grain}"))
    if everybody:
        for test in _tests_of_chosen(tree):
            _let_all_pass(test)
        if _reads(tree, CHOSEN) and not listed:
            _put_first(tree, CHOSEN, _all_instances(tree))
    pretty = tree.sql("duckdb", pretty=True, comments=False)
    _look_at_ids(tree)
    most = None if tree.args.get("limit") else MOST.get(name, MOST_ROWS)
    if most is not None:
        tree = tree.limit(most + 1)
    inner = {cte.alias for cte in tree.find_all(exp.CTE)}
    return Question(
        name,
        tree.sql("duckdb", identify=True, comments=False),
        pretty,
        frozenset(table.name for table in tree.find_all(exp.Table)) - inner,
        frozenset(marker.name for marker in tree.find_all(exp.Placeholder)),
        most,
    )


def _reads(tree: exp.Query, relation: str) -> bool:
    return any(table.name == relation for table in tree.find_all(exp.Table))


def _put_first(tree: exp.Query, name: str, select: exp.Query) -> None:
    """Define a relation that a question reads before what it defines itself."""
    added = exp.CTE(this=select, alias=exp.TableAlias(this=exp.to_identifier(name)))
    tree.set("with_", exp.With(expressions=[added, *tree.ctes]))


def _all_instances(tree: exp.Query) -> exp.Query:
    """Question `instances` as a part of a question that reads them: in no order, and only what it needs of them.

    DuckDB leaves out columns that nobody reads, but not the join with the consumer groups. If a question wants some
    instances by their ids, no others are read.
    """
    instances = _select("instances")
    instances.set("order", None)
    shows_all = any(select.is_star for select in tree.find_all(exp.Select))  # of `*`; that of `count(*)` is none
    if not shows_all and all(column.name != "group_id" for column in tree.find_all(exp.Column)):
        instances.set("joins", None)
        instances.set("expressions", [each for each in instances.expressions if each.alias_or_name != "group_id"])
        instances.set("with_", exp.With(expressions=[cte for cte in instances.ctes if cte.alias == "pushed"]))
    for wanted in _wanted_ids(tree):
        for where in list(instances.find_all(exp.Where)):
            where.set("this", exp.and_(where.this, wanted.copy()))
    return instances


def _wanted_ids(tree: exp.Query) -> list[exp.In]:
    """Conditions that hold for all instances that a question reads, if it reads them once: ids IN a SELECT."""
    selects = [select for select in tree.find_all(exp.Select) if _reads_itself(select, CHOSEN)]
    if len(selects) != 1 or (where := selects[0].args.get("where")) is None:
        return []
    conditions = where.this.flatten() if isinstance(where.this, exp.And) else [where.this]
    return [each for each in conditions if isinstance(each, exp.In) and each.this.name == "client_instance_id"]


def _reads_itself(select: exp.Select, relation: str) -> bool:
    """Whether a SELECT reads a relation itself, and not what it is made of."""
    tables = [each.this for each in (select.args.get("from_"), *(select.args.get("joins") or ())) if each is not None]
    return any(isinstance(table, exp.Table) and table.name == relation for table in tables)


def _look_at_ids(tree: exp.Query) -> None:
    """Where only clusters and client ids of the chosen instances are compared, read these without repeats."""
    for test in _tests_of_chosen(tree):
        inside = test.args["query"].find_all(exp.Column)
        if {column.name for column in inside} <= {"cluster_id", "client_id"}:
            (table,) = test.find_all(exp.Table)
            table.replace(exp.to_table(CHOSEN_IDS))


def _let_all_pass(test: exp.Expression) -> None:
    """Leave out a condition, and what else would let a row pass besides it."""
    while isinstance(test.parent, exp.Or | exp.Paren):
        test = test.parent
    if isinstance(test.parent, exp.And):
        both = test.parent
        both.replace(both.right if test is both.left else both.left)
    elif isinstance(test.parent, exp.Where):
        test.parent.pop()


def _tests_of_chosen(tree: exp.Query) -> list[exp.In]:
    """Conditions that something is IN the chosen instances."""
    return [test for test in tree.find_all(exp.In) if any(table.name == CHOSEN for table in test.find_all(exp.Table))]


def _select(name: str) -> exp.Query:
    tree = sqlglot.parse_one((FOLDER / f"{name}.sql").read_text("utf-8"), read="spark")
    assert isinstance(tree, exp.Query), f"sql/dashboard/{name}.sql is not one SELECT"
    return tree


_PARAMETER = re.compile(r"\$(\w+)")
_WITH = re.compile(r"^\s*WITH\s+", re.IGNORECASE)


def of_question(name: str, grain: Grain, values: Mapping[str, Parameter], selection: Selection) -> str:
    """The statement of a question about the selected clients."""
    of = question(name, grain, everybody=not selection.filters)
    text = filled(of.pretty, values)
    if of.reads.isdisjoint({CHOSEN, CHOSEN_IDS}):
        return text
    return with_relation(CHOSEN, _chosen(values, selection), text)


def with_relation(name: str, select: str, sql: str) -> str:
    """A statement that reads the rows of a SELECT under this name."""
    added = f"WITH {name} AS (\n{select}\n)"
    return f"{added},\n{_WITH.sub('', sql)}" if _WITH.match(sql) else f"{added}\n{sql}"


def filled(sql: str, values: Mapping[str, Parameter]) -> str:
    """A statement with its parameters' values in place of them."""
    return _PARAMETER.sub(lambda match: literal(values[match[1]]) if match[1] in values else match[0], sql)


def literal(value: Parameter) -> str:
    """A value as SQL."""
    if isinstance(value, datetime):
        return f"TIMESTAMPTZ '{value.isoformat(sep=' ')}'"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    return str(value) if isinstance(value, int) else "'{}'".format(value.replace("'", "''"))


def view_sql(
    name: str, between: tuple[str, datetime, datetime] | None, where: Mapping[str, Parameter]
) -> tuple[str, dict[str, Parameter]]:
    """The SELECT of `LakeReader.rows` without its limit, and the values of its parameters."""
    conditions, values = [], dict[str, Parameter]()
    for number, (column, value) in enumerate(where.items()):
        test = f"list_contains($w{number}, {_quoted(column)})" if isinstance(value, list) else None
        conditions.append(test or f"{_quoted(column)} = $w{number}")
        values[f"w{number}"] = value
    order = ""
    if between is not None:
        column = _quoted(between[0])
        conditions.append(f"{column} >= $start AND {column} < $stop")
        values |= {"start": between[1], "stop": between[2]}
        order = f" ORDER BY {column} DESC"
    condition = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT * FROM {_quoted(name)}{condition}{order}", values


def _quoted(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _chosen(values: Mapping[str, Parameter], selection: Selection) -> str:
    """The client instances that pass the filters, as `open_scene` finds them."""
    select = f"SELECT *\nFROM (\n{filled(question('instances').pretty, values)}\n)"
    conditions = []
    for key, column in FILTERS.items():
        if chosen := selection.chosen(key):
            condition = f"{column} IN ({', '.join(map(literal, chosen))})"
            if key in OWNED:
                condition = f"client_instance_id IN (SELECT client_instance_id FROM clients WHERE {condition})"
            conditions.append(condition)
    return "\n".join([select, *([f"WHERE {' AND '.join(conditions)}"] if conditions else [])])


# The metrics that pages plot, without this prefix. A page asks for the sums of all of them (`SUMMED_TOGETHER`) at once,
# so that the next page of the same range has its own already.
PREFIX = "org.apache.kafka."


class Producer:
    """Metrics of producers."""

    SENT, RETRIED, FAILED = "producer.record.send.total", "producer.record.retry.total", "producer.record.error.total"
    BYTES, LATENCY = "producer.topic.byte.total", "producer.request.latency.avg"
    LATENCY_MAX, QUEUE = "producer.request.latency.max", "producer.record.queue.time.avg"
    PER_REQUEST, BATCH = "producer.records.per.request.avg", "producer.batch.size.avg"
    COMPRESSION, THROTTLE = "producer.compression.rate.avg", "producer.produce.throttle.time.max"
    METADATA_AGE = "producer.metadata.age"
    OVER_TIME = (SENT, RETRIED, FAILED, BYTES, LATENCY, LATENCY_MAX, QUEUE, PER_REQUEST, BATCH)


class Consumer:
    """Metrics of consumers and of their groups."""

    RECORDS, BYTES = "consumer.fetch.manager.records.consumed.total", "consumer.fetch.manager.bytes.consumed.total"
    LAG, FETCH = "consumer.fetch.manager.records.lag.max", "consumer.fetch.manager.fetch.latency.avg"
    IDLE, BETWEEN_POLLS = "consumer.poll.idle.ratio.avg", "consumer.time.between.poll.max"
    REBALANCES, FAILED = "consumer.coordinator.rebalance.total", "consumer.coordinator.failed.rebalance.total"
    COMMIT, THROTTLE = "consumer.coordinator.commit.latency.avg", "consumer.fetch.manager.fetch.throttle.time.max"
    OVER_TIME = (RECORDS, BYTES, LAG, FETCH, IDLE, REBALANCES, FAILED, COMMIT)
    OF_GROUPS = (LAG, REBALANCES, FAILED, COMMIT, IDLE, BETWEEN_POLLS)


class Connections:
    """Metrics of connections: name to the kind of client that has it."""

    CREATED, CLOSED, REFUSED = (
        {f"{kind}.{what}.total": kind.replace(".", " ") for kind in ("producer", "consumer", "admin.client")}
        for what in ("connection.creation", "connection.close", "failed.authentication")
    )
    OVER_TIME = (*CREATED, *CLOSED, *REFUSED, Producer.METADATA_AGE)


SUMMED_TOGETHER = frozenset(
    PREFIX + metric
    for metric in (
        *Producer.OVER_TIME,
        Producer.COMPRESSION,
        Producer.THROTTLE,
        *Consumer.OVER_TIME,
        *Consumer.OF_GROUPS,
        Consumer.THROTTLE,
        *Connections.OVER_TIME,
    )
)
