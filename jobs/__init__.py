"""The commands of ``telemetry-lake``: command `x` has its settings in `x_settings` and its code in `x`."""
