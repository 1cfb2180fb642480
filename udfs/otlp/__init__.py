"""Decoding OTLP MetricsData (metrics.proto): a compiled wire-format reader, and a readable reference."""
