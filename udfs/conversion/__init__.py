"""Pushes of one shard to rows and state: decompression, rules for points, redelivery, deltas, rollups."""
