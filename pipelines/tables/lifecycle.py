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
        column("environment", pa.string(), "where it runs, such as production"),
    ),
)

APPLICATION_RULES = history_table(
    "application_rules",
    "One version of a rule that says which clients are of which application, as listed in a file. NULL: no condition.",
    keys=(
        column("position", pa.int32(), "index in the file's list, from 0: the first rule that fits a client counts"),
    ),
    values=(
        column("client_id", pa.string(), "regular expression that the whole client.id matches"),
        column("principal", pa.string(), "regular expression that the whole principal matches"),
        column("group_id", pa.string(), "regular expression that the whole consumer group id matches"),
        column("address_range", pa.string(), "network that the client's address is in, such as 10.1.0.0/16"),
        column("application", pa.string(), "application that the client is part of"),
        column("owner", pa.string(), "person or team responsible for the application"),
        column("environment", pa.string(), "where it runs, such as production"),
        column("address_first", pa.string(), "first address of the network: 12 digits (IPv4) or 32 hex digits"),
        column("address_last", pa.string(), "last address of the network"),
    ),
)
