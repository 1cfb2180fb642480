"""Texts in SQL: literals of Spark's dialect, and markers such as `:name` with the values that take their place.

Files of `sql/` have markers where the rules of the findings or what is known about libraries come in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

MARKER = re.compile(r"(?<![:?\w]):([a-z][a-z0-9_]*)")


def quoted(text: str, dialect: str = "spark") -> str:
    """A text as a literal."""
    return exp.Literal.string(text).sql(dialect)


def filled(sql: str, values: Mapping[str, str]) -> str:
    """A statement or expression with the SQL of each value in place of its marker; markers without a value stay."""
    return MARKER.sub(lambda marker: values.get(marker[1], marker[0]), sql)
