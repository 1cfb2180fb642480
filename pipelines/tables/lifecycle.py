"""Tables of the client lifecycle."""

from __future__ import annotations

from kafka_telemetry_lake.pipelines.tables.table import defined, defined_history

CLIENT_CHANGES = defined("client_changes")
CLIENT_ALIASES = defined_history("client_aliases")
APPLICATION_RULES = defined_history("application_rules")
