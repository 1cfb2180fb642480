"""Tables of the client lifecycle."""

from __future__ import annotations

import pyarrow as pa

from kafka_telemetry_lake.pipelines.tables.table import Table, history_table
from kafka_telemetry_lake.udfs.lifecycle.rows import CLIENT_CHANGES as CLIENT_CHANGE_ROWS
from kafka_telemetry_lake.udfs.rows import column

CLIENT_CHANGES = Table(
    "client_changes",
    "State of a client instance after a change; the row with the greatest step is current (view clients).",
    CLIENT_CHANGE_ROWS,
    ("landed_at", "step", "client_instance_id"),
)


CLIENT_ALIASES = history_table(
    "client_aliases",
    "One version of a client's alias, its application and owner, as listed in a file or topic.",
    keys=(
        column("client_instance_id", pa.string(), "client instance of the alias; NULL: all instances of client_id"),
        column("client_id", pa.string(), "client.id of the alias; NULL: client_instance_id identifies the client"),
    ),
    values=(
        column("application", pa.string(), "application that the client is part of"),
        column("owner", pa.string(), "person or team responsible for the application"),
    ),
)
