"""SQL on a lake: views, DuckDB without Spark, Spark's catalog, the kernels as SQL functions."""
