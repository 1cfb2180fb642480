"""How long is waited for what brokers, clients and tests do by themselves."""

PATIENCE_S = 600.0
"""Seconds. A busy machine is slow, not wrong: what is awaited ends each wait, or the end of the process that should do
it. This ends what hangs."""
