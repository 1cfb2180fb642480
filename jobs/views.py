"""``telemetry-lake views``: creates the views of ``sql/`` in Spark, or lists them with their questions."""

from __future__ import annotations

from kafka_telemetry_lake.jobs.settings.views import ViewsSettings
from kafka_telemetry_lake.pipelines.findings.overrides import read_overrides
from kafka_telemetry_lake.pipelines.query.views import views


def run_job(settings: ViewsSettings) -> int:
    """Create the views; without a lake list them."""
    if settings.lake is None and settings.names is None:
        width = max(map(len, views()))
        for name, view in sorted(views().items()):
            print(f"{name:<{width}}  {view.question.partition('?')[0]}?")
        return 0
    from kafka_telemetry_lake.jobs.support import named_lake  # noqa: PLC0415  # listing works without Spark

    overrides = read_overrides(settings.rules)
    if settings.names is not None:
        named_lake.make_views_by_name(settings.names, settings.driver_memory, overrides)
    else:
        named_lake.make_views(settings.folder, settings.database, settings.driver_memory, overrides)
    return 0
