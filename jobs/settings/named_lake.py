"""Settings that name a lake whose tables are in a catalog of Spark, instead of a folder."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError
from kafka_telemetry_lake.pipelines.tables.names import Names, is_name


def _name(value: str) -> str:
    if is_name(value):
        return value
    raise ValueError("allowed: letters, digits, _ and -")


Name = Annotated[str, AfterValidator(_name)]


class NamedLakeSettings(JobSettings):
    """The place of a lake: a folder, or a catalog and schema."""

    lake: str | None = None
    """folder or URI of the lake; ingest creates it if missing, views without one lists the views"""
    catalog: Name | None = None
    """catalog of a lake of tables by name, such as main; needs schema, and replaces lake"""
    schema_: Annotated[Name | None, Field(alias="schema")] = None
    """schema of the lake's tables in that catalog; ingest creates it if missing"""

    @property
    def folder(self) -> str:
        """Folder or URI of a lake that isn't in a catalog."""
        assert self.lake is not None  # ensured by `check_place_of_lake`
        return self.lake

    @property
    def names(self) -> Names | None:
        """Names of the lake's tables; None: it is a folder."""
        return Names(self.catalog, self.schema_) if self.catalog is not None and self.schema_ is not None else None

    def check_place_of_lake(self) -> None:
        """Raise ``UsageError`` unless there is a folder, or a catalog with what it needs."""
        if self.catalog is None and self.schema_ is None:
            if self.lake is None:
                raise UsageError("lake: required; set --lake or TELEMETRY_LAKE_LAKE")
            return
        if self.catalog is None:
            raise UsageError("schema: works only with --catalog")
        if self.schema_ is None:
            raise UsageError("catalog: needs the schema of the lake's tables; add --schema NAME")
        if self.lake is not None:
            raise UsageError("catalog: not together with --lake: a lake is a catalog and schema, or a folder")


def require_checkpoints(names: Names | None, checkpoints: str | None) -> None:
    """Raise ``UsageError`` if a lake in a catalog has no place for what isn't a table."""
    if names is not None and checkpoints is None:
        raise UsageError("catalog: needs --checkpoints: a folder or URI for state, notes and locks, outside of tables")
