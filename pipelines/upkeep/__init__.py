"""Upkeep while the stream runs: today's small files are merged as they come, and the logs get checkpoints."""
