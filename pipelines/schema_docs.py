"""docs/schema.md, made of the table definitions and the views: ``python -m pipelines.schema_docs``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from pipelines.catalog import CATALOG
from pipelines.client_matches import CACHE_TABLES
from pipelines.consumer_group_offsets import GROUP_OFFSETS
from pipelines.consumer_groups import GROUP_MEMBERS, GROUP_STATES
from pipelines.lifecycle_tables import CLIENT_ALIASES, CLIENT_CHANGES
from pipelines.pipeline_metrics import PIPELINE_METRICS
from pipelines.quality_results import QUALITY_RESULTS
from pipelines.quotas import QUOTAS
from pipelines.subscriptions import SUBSCRIPTIONS
from pipelines.tables import LANDED_DATE, QUOTA_REPORTS, QUOTA_SAMPLES, QUOTA_USAGE, TABLES
from pipelines.views import views

PAGE = Path(__file__).parent.parent / "docs" / "schema.md"
MEANINGS = {
    table.name: table.meaning
    for table in (
        *TABLES, PIPELINE_METRICS, QUALITY_RESULTS, CLIENT_CHANGES, QUOTA_SAMPLES, QUOTA_REPORTS, QUOTA_USAGE,
        SUBSCRIPTIONS, QUOTAS, CLIENT_ALIASES, *CACHE_TABLES, GROUP_STATES, GROUP_MEMBERS, GROUP_OFFSETS,
    )
}  # fmt: skip
HEAD = """# Schema

Made by `python -m pipelines.schema_docs` from the table definitions and `sql/`; don't edit it. Types are Spark's.
Times are UTC, to the microsecond. A NULL `cluster_id` is a record that doesn't say which cluster it is of. What
statuses, reasons and outcomes mean is in [semantics](semantics.md).
"""
_NAMES = {
    "string": "string", "bool": "boolean", "int32": "int", "int64": "bigint", "double": "double", "binary": "binary",
    "date32[day]": "date", "timestamp[us, tz=UTC]": "timestamp",
}  # fmt: skip


def spark_type(kind: pa.DataType) -> str:
    """An Arrow type by Spark's name."""
    if pa.types.is_map(kind):
        return f"map<{spark_type(kind.key_type)}, {spark_type(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    return _NAMES[str(kind)]


def page() -> str:
    """The page's text."""
    return "\n".join([HEAD, "## Tables\n", *_tables(), "## Views\n", *_views()])


def _tables() -> Iterator[str]:
    for name, schema in CATALOG.items():
        yield f"### {name}\n\n{MEANINGS[name]}"
        if LANDED_DATE.name in schema.names:
            yield f"\nPartitioned by `{LANDED_DATE.name}`."
        yield "\n| column | type | meaning |\n|---|---|---|"
        for field in schema:
            meaning = (field.metadata or {}).get(b"comment", b"").decode()
            yield f"| `{field.name}` | {spark_type(field.type)} | {_cell(meaning)} |"
        yield ""


def _views() -> Iterator[str]:
    with duckdb.connect() as connection:
        for name, schema in CATALOG.items():
            connection.register(name, schema.empty_table())
        for view in views().values():
            connection.execute(f'CREATE TEMP VIEW "{view.name}" AS {view.duckdb}')
        for name, view in sorted(views().items()):
            columns = connection.sql(f'SELECT * FROM "{name}"').columns
            yield f"### {name}\n\n{view.question}\n\nColumns: {', '.join(f'`{column}`' for column in columns)}.\n"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
