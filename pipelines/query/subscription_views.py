"""A view for each subscription in force, `subscription_<name>`, with its rows of `subscription_metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from sqlglot import exp

from kafka_telemetry_lake.pipelines.tables.subscriptions import SUBSCRIPTIONS
from kafka_telemetry_lake.udfs.subscriptions.view_names import PREFIX, view_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BELOW = "subscription_metrics"


def subscription_views(lake: str, dialect: str) -> dict[str, str]:
    """Name and SELECT (in a dialect of sqlglot) of each view; empty if the lake has no subscriptions yet."""
    try:
        versions = DeltaTable(SUBSCRIPTIONS.uri(lake)).to_pyarrow_table(columns=["name", "valid_to"])
    except TableNotFoundError:
        return {}
    in_force = {row["name"] for row in versions.to_pylist() if row["valid_to"] is None}
    return {
        view: f"SELECT * FROM {BELOW} WHERE subscription = {exp.Literal.string(name).sql(dialect)}"
        for name, view in sorted(view_names(in_force).items())
    }


def update_subscription_views(spark: SparkSession, lake: str, others: set[str], database: str | None = None) -> None:
    """Create the views of the subscriptions in force, and drop those of other subscriptions.

    Args:
        others: names of views with the same prefix that must not be dropped.
        database: database of the views and of `subscription_metrics`; None: temporary views of this session.
    """
    wanted = subscription_views(lake, "spark")
    kind, place, where = ("VIEW", f"`{database}`.", f" IN `{database}`") if database else ("TEMPORARY VIEW", "", "")
    for name, select in wanted.items():
        rows = select.replace(f" FROM {BELOW} ", f" FROM {place}{BELOW} ", 1)
        spark.sql(f"CREATE OR REPLACE {kind} {place}`{name}` AS {rows}")
    existing = spark.sql(f"SHOW VIEWS{where} LIKE '{PREFIX}*'").collect()
    for name in {row["viewName"] for row in existing if bool(row["isTemporary"]) == (database is None)}:
        if name not in wanted and name not in others:
            spark.sql(f"DROP VIEW IF EXISTS {place}`{name}`")
