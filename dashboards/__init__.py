"""What people look at: pages in the browser over a lake, read by DuckDB, without Spark."""
