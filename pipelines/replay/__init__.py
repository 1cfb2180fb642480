"""Replay: recomputes rows from stored pushes and swaps them in."""
