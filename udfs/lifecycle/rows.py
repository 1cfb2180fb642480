"""Rows of table `client_changes`, from which view `clients` takes the newest of each client instance."""

from __future__ import annotations

import pyarrow as pa

from kafka_telemetry_lake.udfs.rows import columns

ACTIVE, TERMINATED, SILENT, UNSUBSCRIBED = range(4)
STATES = pa.array(["active", "terminated", "silent", "unsubscribed"])

# Texts that describe a client; of each, the newest push that has one counts.
TEXTS = ("client_id", "client_software_name", "client_software_version", "principal", "client_address")

CLIENT_CHANGES = pa.schema(columns("client_changes"))
