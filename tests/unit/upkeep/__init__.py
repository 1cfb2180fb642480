"""Upkeep beside the stream."""
