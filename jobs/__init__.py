"""The commands of ``telemetry-lake``: the code of command `x` is in `x`, its settings are in `settings/x`."""
