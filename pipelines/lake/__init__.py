"""Reads and writes a lake: commits, notes, checks against repeated offsets, errors."""
