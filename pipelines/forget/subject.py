"""What a lake stores about a client instance or a principal: the values by which its rows are found.

They are read before the first row goes and stored in the note of the erasure, because later they couldn't be found.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any
from urllib.parse import quote, quote_plus

import duckdb
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.privacy import Privacy
from kafka_telemetry_lake.pipelines.lake.stored_pushes import IDENTITY, same_push
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES
from kafka_telemetry_lake.pipelines.tables.subscriptions import CLIENT_ATTRIBUTES
from kafka_telemetry_lake.pipelines.tables.table import table_uri
from kafka_telemetry_lake.udfs.conversion.principals import budget_keys
from kafka_telemetry_lake.udfs.identity import client_keys, text_hash
from kafka_telemetry_lake.udfs.kernels.arrays import Int64s

ANONYMOUS = "User:ANONYMOUS"  # of every client that doesn't authenticate
NAMES = ("client_id", "principal", "client_address")
# All tables that say which client instance has which names.
WITNESSES = {
    name: schema
    for name, schema in CATALOG.items()
    if {"cluster_id", "client_instance_id"} <= set(schema.names) and {*NAMES} & set(schema.names)
}
Identity = tuple[Any, ...]  # the values of `IDENTITY`, landed_at in µs since 1970


@dataclass(frozen=True)
class Request:
    """What to erase: a client instance or a principal, in one cluster or (None) in all of them."""

    client_instance: str | None = None
    principal: str | None = None
    cluster_id: str | None = None

    def __str__(self) -> str:
        what = f"principal {self.principal}" if self.client_instance is None else f"client {self.client_instance}"
        return what if self.cluster_id is None else f"{what} of cluster {self.cluster_id}"


@dataclass(frozen=True)
class Subject:
    """The values that identify what is erased, as the lake stores them.

    Attributes:
        cluster_id: only rows of this cluster are erased; None: of all.
        clusters: those that the lake knows.
        instances: client instance ids; all their rows go.
        principals: also as pseudonyms, if the lake stores those.
        users: the principals' names in quotas, also URL-encoded.
        client_ids, addresses: those that no other client instance has, of the cluster or of the lake.
        members: ids as a member of a consumer group.
        attributes: ids of rows of `client_attributes` that no other client has.
        pushes: pushes of the principal under a client instance id that belongs to another one.
        elsewhere: those of these texts that other clusters have too, if only one is asked for.
    """

    cluster_id: str | None = None
    clusters: frozenset[str] = frozenset()
    instances: frozenset[str] = frozenset()
    principals: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    client_ids: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    attributes: frozenset[int] = frozenset()
    pushes: frozenset[Identity] = frozenset()
    elsewhere: frozenset[str] = frozenset()

    def __or__(self, other: Subject) -> Subject:
        return replace(self, **{name: getattr(self, name) | getattr(other, name) for name in _SETS})

    @cached_property
    def texts(self) -> frozenset[str]:
        """The texts that name it in the rows of its clusters."""
        return frozenset().union(
            self.instances, self.principals, self.users, self.client_ids, self.addresses, self.members
        )

    @cached_property
    def gone(self) -> frozenset[str]:
        """The texts of which no file may have a trace."""
        return self.texts - self.elsewhere

    @cached_property
    def keys(self) -> Int64s:
        """Keys in the operator's state: of the clients, and of the principals' budgets."""
        pairs = [(cluster, instance) for cluster in self.clusters | {""} for instance in self.instances]
        clusters, instances = (pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1))
        clients = client_keys(clusters.dictionary_encode(), instances.dictionary_encode())
        principals = np.array([text_hash(each) for each in self.principals], np.uint64)
        return np.concatenate([clients, budget_keys(principals.view(np.int64))])

    def to_json(self) -> dict[str, Any]:
        """The subject as JSON values, for `from_json`."""
        return {"cluster_id": self.cluster_id} | {name: sorted(getattr(self, name), key=str) for name in _SETS}

    @staticmethod
    def from_json(content: dict[str, Any]) -> Subject:
        sets: dict[str, Any] = {
            name: frozenset(tuple(each) if isinstance(each, list) else each for each in content[name]) for name in _SETS
        }
        return Subject(content["cluster_id"], **sets)


_SETS = tuple(field.name for field in fields(Subject) if field.name != "cluster_id")


def pseudonym(principal: str, key: str) -> str:
    """The principal as ``--personal-data hash`` stores it with this key."""
    return str(Privacy("hash", key).of(principal))


def subject_of(lake: str, request: Request, personal_data_key: str = "") -> Subject:
    """Find what identifies a client or principal. One that is unknown has no names.

    Args:
        lake: folder or URI of the lake.
        personal_data_key: with which the lake's pseudonyms were made; empty: it has none.
    """
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        _register(connection, lake)
        clusters = frozenset(row[0] for row in _rows(connection, "SELECT DISTINCT coalesce(cluster_id, '') FROM names"))
        if request.cluster_id is not None:
            clusters = frozenset({request.cluster_id})
        if request.client_instance is not None:
            subject = Subject(request.cluster_id, clusters, frozenset({request.client_instance}))
        else:
            subject = _of_principal(connection, request, clusters, personal_data_key)
        subject = _with_names(connection, subject)
        return subject if request.cluster_id is None else replace(subject, elsewhere=_elsewhere(connection, subject))


def clusters_with(lake: str, request: Request) -> list[str]:
    """The clusters with rows of a client instance or principal, whichever cluster the request names."""
    column, value = ("principal", request.principal)
    if request.client_instance is not None:
        column, value = ("client_instance_id", request.client_instance)
    with duckdb.connect() as connection:
        _register(connection, lake)
        query = f"SELECT DISTINCT cluster_id FROM names WHERE {column} = ? AND cluster_id IS NOT NULL ORDER BY 1"
        return [row[0] for row in connection.execute(query, [value]).fetchall()]


def _of_principal(
    connection: duckdb.DuckDBPyConnection, request: Request, clusters: frozenset[str], key: str
) -> Subject:
    """A principal has the instances under which it pushed first. Of others only its own pushes are its own."""
    assert request.principal is not None
    principals = {request.principal} | ({pseudonym(request.principal, key)} if key else set())
    users = {text.partition(":")[2] or text for text in principals}
    _texts(connection, "principals", principals)
    where = f"principal IN (FROM principals){_of_cluster(request.cluster_id)}"
    first = f"""
        SELECT client_instance_id FROM pushes
        WHERE principal IS NOT NULL AND client_instance_id IN (SELECT client_instance_id FROM pushes WHERE {where})
        GROUP BY cluster_id, client_instance_id
        HAVING min_by(principal, (landed_at, "partition", "offset")) IN (FROM principals)
        UNION SELECT client_instance_id FROM names WHERE {where} AND client_instance_id NOT IN (
            SELECT client_instance_id FROM pushes WHERE client_instance_id IS NOT NULL)"""
    instances = _texts_of(connection, first)
    _texts(connection, "instances", instances)
    columns = ", ".join(f'"{name}"' for name in (*IDENTITY, "client_id", "client_address"))
    connection.execute(
        f"CREATE TEMP TABLE foreign_pushes AS SELECT {columns} FROM pushes "
        f"WHERE {where} AND coalesce(client_instance_id NOT IN (FROM instances), true)"
    )
    only = {
        name: f"SELECT {name} FROM foreign_pushes WHERE {name} <> '' EXCEPT "
        f"SELECT {name} FROM pushes WHERE NOT coalesce({where}, false)"
        for name in ("client_id", "client_address")
    }
    attributes = [
        f"SELECT client_attributes_id FROM push_outcomes {join} JOIN foreign_pushes "
        f"ON {same_push('push_outcomes', 'foreign_pushes')}"
        for join in ("SEMI", "ANTI")
    ]
    identity = ", ".join("epoch_us(landed_at)" if name == "landed_at" else f'"{name}"' for name in IDENTITY)
    return Subject(
        request.cluster_id,
        clusters,
        instances,
        frozenset(principals),
        _encoded(users),
        client_ids=_texts_of(connection, only["client_id"]),
        addresses=_texts_of(connection, only["client_address"]),
        attributes=frozenset(row[0] for row in _rows(connection, " EXCEPT ".join(attributes)) if row[0] is not None),
        pushes=frozenset(_rows(connection, f"SELECT {identity} FROM foreign_pushes")),
    )


def _with_names(connection: duckdb.DuckDBPyConnection, subject: Subject) -> Subject:
    """Add the names that only these client instances have."""
    _texts(connection, "instances", subject.instances)
    here = _of_cluster(subject.cluster_id)
    mine = f"(client_instance_id IN (FROM instances){here})"
    others = f"client_instance_id IS NOT NULL AND client_instance_id NOT IN (FROM instances){here}"
    only = {
        name: _texts_of(
            connection,
            f"SELECT {name} FROM names WHERE {mine} AND {name} <> '' EXCEPT SELECT {name} FROM names WHERE {others}",
        )
        for name in NAMES
    }
    principals = only["principal"] - {ANONYMOUS}
    users = _encoded(text.partition(":")[2] or text for text in principals)
    members = f"""
        SELECT unnest(group_member_ids) FROM {CLIENT_CHANGES.name} WHERE {mine}
        UNION SELECT unnest(map_extract(labels, 'group_member_id')) FROM {PUSH_OUTCOMES.name} WHERE {mine}"""
    attributes = f"""
        (SELECT client_attributes_id FROM {CLIENT_ATTRIBUTES.name} WHERE {mine}
        UNION SELECT client_attributes_id FROM {PUSH_OUTCOMES.name} WHERE {mine})
        EXCEPT SELECT client_attributes_id FROM {PUSH_OUTCOMES.name} WHERE {others}"""
    return subject | Subject(
        principals=principals,
        users=users,
        client_ids=only["client_id"],
        addresses=only["client_address"],
        members=_texts_of(connection, members),
        attributes=frozenset(row[0] for row in _rows(connection, attributes) if row[0] is not None),
    )


def _elsewhere(connection: duckdb.DuckDBPyConnection, subject: Subject) -> frozenset[str]:
    other = f"NOT coalesce(true{_of_cluster(subject.cluster_id)}, false)"
    names: set[str] = set()
    for name in ("client_instance_id", *NAMES):
        names |= _texts_of(connection, f"SELECT {name} FROM names WHERE {other}")
    users = _encoded(text.partition(":")[2] or text for text in names & subject.principals)
    return subject.texts & (names | users)


def _register(connection: duckdb.DuckDBPyConnection, lake: str) -> None:
    """Register the lake's tables, and `names`: the names that each client instance has had."""
    parts = []
    for name, schema in WITNESSES.items():
        uri = table_uri(lake, name)
        table = DeltaTable(uri).to_pyarrow_dataset() if DeltaTable.is_deltatable(uri) else schema.empty_table()
        connection.register(name, table)
        columns = [each if each in table.schema.names else f"NULL::VARCHAR AS {each}" for each in NAMES]
        parts.append(f"SELECT cluster_id, client_instance_id, {', '.join(columns)} FROM {name}")
    connection.execute(f"CREATE TEMP TABLE names AS {' UNION '.join(parts)}")


def _texts(connection: duckdb.DuckDBPyConnection, name: str, texts: Iterable[str]) -> None:
    connection.register(name, pa.table({"text": pa.array(sorted(texts), pa.string())}))


def _texts_of(connection: duckdb.DuckDBPyConnection, query: str) -> frozenset[str]:
    return frozenset(row[0] for row in _rows(connection, query) if row[0])


def _of_cluster(cluster_id: str | None) -> str:
    return "" if cluster_id is None else " AND cluster_id = '" + cluster_id.replace("'", "''") + "'"


def _encoded(names: Iterable[str]) -> frozenset[str]:
    return frozenset(text for name in names for text in (name, quote(name, safe=""), quote_plus(name)))


def _rows(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = connection.execute(query).fetchall()
    return rows
