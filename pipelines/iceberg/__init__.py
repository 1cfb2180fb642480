"""The lake's tables as Iceberg tables over the same Parquet files."""
