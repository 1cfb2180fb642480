"""Client instances of a scene that nobody has to ask a lake for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.dashboards.address import Selection
from kafka_telemetry_lake.dashboards.clients import NONE, SelectedClients


def known_clients(instances: pa.Table) -> SelectedClients:
    """Rows of question `instances`, or of some of its columns; all pass the filters."""
    nothing: Any = None
    ever = datetime(2026, 11, 21, tzinfo=UTC)
    clients = SelectedClients(nothing, (), Selection(), ever, ever)
    ids = len(pc.unique(instances["client_id"])) if instances.num_rows else 0
    totals = NONE._replace(instances=instances.num_rows, client_ids=ids)
    # Where `cached_property` has them.
    vars(clients).update(instances=instances, chosen=instances, known=totals, shown=totals)
    return clients
