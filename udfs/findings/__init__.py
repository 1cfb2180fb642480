"""Findings as states that open and close: plain Python, no Spark, no I/O."""
