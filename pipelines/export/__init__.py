"""Fleet figures for Prometheus, and points and events for OTLP."""
