"""Upkeep beside the stream: today's small files are merged as they come, and the logs get checkpoints."""
