"""Texts in statements of Spark's dialect."""

from __future__ import annotations

from sqlglot import exp


def quoted(text: str) -> str:
    """A text as a literal."""
    return exp.Literal.string(text).sql("spark")
