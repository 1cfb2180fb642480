"""One view for each subscription that is in force: `subscription_<name>`, its rows of `subscription_metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from sqlglot import exp

from pipelines.subscriptions import SUBSCRIPTIONS
from udfs.subscription_views import PREFIX, view_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BELOW = "subscription_metrics"


def subscription_views(lake: str, dialect: str) -> dict[str, str]:
    """Name and SELECT (in sqlglot's dialect) of each view; none where the lake has no subscriptions yet."""
    try:
        versions = DeltaTable(SUBSCRIPTIONS.uri(lake)).to_pyarrow_table(columns=["name", "valid_to"])
    except TableNotFoundError:
        return {}
    in_force = {row["name"] for row in versions.to_pylist() if row["valid_to"] is None}
    return {
        view: f"SELECT * FROM {BELOW} WHERE subscription = {exp.Literal.string(name).sql(dialect)}"
        for name, view in sorted(view_names(in_force).items())
    }


def keep_subscription_views(spark: SparkSession, lake: str, others: set[str], database: str | None = None) -> None:
    """Create the views of the subscriptions in force, and drop those of the ones that are gone.

    Args:
        others: names of views that begin alike and stay.
        database: where the views are, beside `subscription_metrics`; None: temporary views of this session.
    """
    wanted = subscription_views(lake, "spark")
    kind, place, where = ("VIEW", f"`{database}`.", f" IN `{database}`") if database else ("TEMPORARY VIEW", "", "")
    for name, select in wanted.items():
        rows = select.replace(f" FROM {BELOW} ", f" FROM {place}{BELOW} ", 1)
        spark.sql(f"CREATE OR REPLACE {kind} {place}`{name}` AS {rows}")
    held = spark.sql(f"SHOW VIEWS{where} LIKE '{PREFIX}*'").collect()
    for name in {row["viewName"] for row in held if bool(row["isTemporary"]) == (database is None)}:
        if name not in wanted and name not in others:
            spark.sql(f"DROP VIEW IF EXISTS {place}`{name}`")
