"""Ingestion of landing records into the operator's tables: sources, streams, tasks."""
