"""Which bound a rule's measure is compared with: the line of its plot, read from the rule's own condition."""

from __future__ import annotations

import functools

import sqlglot
from sqlglot import exp

# By which measure is worse: the comparisons that more, or less, of it fulfils, and which of several bounds counts.
_COMPARED: dict[str, tuple[type[exp.Expression], ...]] = {"more": (exp.GT, exp.GTE), "less": (exp.LT, exp.LTE)}
_ALL_HOLD = {"more": "greatest", "less": "least"}


@functools.cache
def compared_with(condition: str, measure: str, worse: str) -> str | None:
    """What a condition compares the measure with, as an expression; None: it doesn't compare the measure itself.

    Of several comparisons that must all hold, the bound is the one that holds last. An alternative (OR) has no such
    bound.

    Args:
        condition, measure: of Spark's dialect, with the bounds as markers.
        worse: "more" or "less".

    Raises:
        sqlglot.errors.SqlglotError: not an expression.
    """
    tree, measured = (sqlglot.parse_one(text, read="spark") for text in (condition, measure))
    parts = tree.flatten() if isinstance(tree, exp.And) else [tree]
    bounds = [
        part.expression.sql("spark") for part in parts if isinstance(part, _COMPARED[worse]) and part.this == measured
    ]
    return None if not bounds else bounds[0] if len(bounds) == 1 else f"{_ALL_HOLD[worse]}({', '.join(bounds)})"
