"""Tables of the client lifecycle."""

from __future__ import annotations

import pyarrow as pa

from pipelines.config_history import ConfigTable
from pipelines.tables import Table
from udfs.lifecycle_rows import CLIENT_CHANGES as CLIENT_CHANGE_ROWS
from udfs.rows import column

CLIENT_CHANGES = Table(
    "client_changes",
    "What changed of a client instance; its row with the greatest step counts (view clients).",
    CLIENT_CHANGE_ROWS,
    ("landed_at", "step", "client_instance_id"),
)


CLIENT_ALIASES = ConfigTable(
    "client_aliases",
    "Which application and owner a client belongs to, as told by a file; one row per version.",
    keys=(
        column("client_instance_id", pa.string(), "client instance that is meant; NULL: all of the client id"),
        column("client_id", pa.string(), "client.id that is meant; NULL: by client_instance_id alone"),
    ),
    values=(
        column("application", pa.string(), "application that the client is part of"),
        column("owner", pa.string(), "who answers for it"),
    ),
)
