"""``telemetry-lake views``: the views of ``sql/``, created in Spark over a lake, or listed with their questions.

Exit codes: 0 done, 1 Spark refused, 2 can't run as asked.
"""

from __future__ import annotations

import sys

from jobs.settings import JobSettings, UsageError, fail, parse


class ViewsSettings(JobSettings):
    """Create the views in a database of Spark's catalog, over the lake's tables; without --lake: list them."""

    lake: str | None = None
    """folder or URI of the lake; none: list the views and the questions that they answer"""
    database: str = "client_telemetry"
    """database for tables and views; made when it isn't there"""
    driver_memory: str = "1g"
    """memory of a local Spark driver"""


def main(argv: list[str] | None = None) -> int:
    """Create or list the views; `argv` without the program's name. Gives the exit code."""
    try:
        settings = parse(ViewsSettings, sys.argv[1:] if argv is None else argv, "telemetry-lake views")
    except UsageError as error:
        return fail(str(error), 2)
    from pipelines.views import views  # noqa: PLC0415  # the parser loads after the flags were found right

    if settings.lake is None:
        width = max(map(len, views()))
        for name, view in sorted(views().items()):
            print(f"{name:<{width}}  {view.question.partition('?')[0]}?")
        return 0
    return _create(settings, settings.lake)


def _create(settings: ViewsSettings, lake: str) -> int:
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from pipelines.jars import JarsUnavailableError  # noqa: PLC0415
    from pipelines.lake_query import is_lake  # noqa: PLC0415
    from pipelines.session import JavaMissingError, spark_session  # noqa: PLC0415
    from pipelines.spark_catalog import register_tables  # noqa: PLC0415
    from pipelines.views import create_views  # noqa: PLC0415

    if not is_lake(lake):
        return fail(f"no lake at {lake}: make one with `telemetry-lake ingest --lake {lake}`", 2)
    try:
        spark = spark_session("telemetry-lake views", driver_memory=settings.driver_memory, lake=lake)
        register_tables(spark, lake, settings.database)
        for name in create_views(spark, lake, settings.database):
            print(f"{settings.database}.{name}")
    except (JarsUnavailableError, JavaMissingError) as error:
        return fail(str(error), 2)
    except PySparkException as error:
        return fail(" ".join(str(error).split()), 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
