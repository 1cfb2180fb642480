"""Links from a table's rows to the pages of their clients, with the same time range."""

from __future__ import annotations

from urllib.parse import urlencode

import pandas as pd

from kafka_telemetry_lake.dashboards.scene import Scene


def client_links(rows: pd.DataFrame, scene: Scene) -> pd.DataFrame:
    """The rows with a column `open`: the address of the page about their `client_instance_id`."""
    query = {key: value for key, value in scene.selection.query().items() if key in ("range", "from", "to")}
    return rows.assign(
        open=[f"client?{urlencode(query | {'instance': instance})}" for instance in rows["client_instance_id"]]
    )
