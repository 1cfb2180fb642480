"""The dashboard: browser pages over a lake, queried through DuckDB, without Spark."""
