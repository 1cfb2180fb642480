"""Tables for costs: the price list and the brokers' racks."""

from __future__ import annotations

from kafka_telemetry_lake.pipelines.tables.table import defined_history

PRICES = defined_history("prices")
BROKERS = defined_history("brokers")
