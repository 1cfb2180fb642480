"""Tables of landed records, and tables that the operator computes from them."""

from __future__ import annotations

from kafka_telemetry_lake.pipelines.tables.table import defined

PUSHES = defined("pushes")
METRIC_POINTS = defined("metric_points")
QUARANTINE = defined("quarantine")
PUSH_OUTCOMES = defined("push_outcomes")
CLIENT_EVENTS = defined("client_events")
METRIC_ROLLUPS_1M = defined("metric_rollups_1m")
METRIC_ROLLUPS_1H = defined("metric_rollups_1h")
RECEIVER_HEALTH = defined("receiver_health")
BROKER_CONNECTIONS = defined("broker_connections")
QUOTA_SAMPLES = defined("quota_samples")
QUOTA_REPORTS = defined("quota_reports")
QUOTA_USAGE = defined("quota_usage")

# Written by the operator's tasks, in this order.
ROWS_OF_PUSHES = (METRIC_POINTS, QUARANTINE, PUSH_OUTCOMES, CLIENT_EVENTS)
OPERATOR_TABLES = (*ROWS_OF_PUSHES, METRIC_ROLLUPS_1M, METRIC_ROLLUPS_1H)
TABLES = (PUSHES, *OPERATOR_TABLES, RECEIVER_HEALTH)
