"""Definitions of the Delta tables: columns, partitions, settings. All other packages of `pipelines` use them."""
