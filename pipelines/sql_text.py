"""Texts in SQL: literals of Spark's dialect, and markers such as `:name` with the values that take their place.

Files of `sql/` have markers where the rules of the findings or what is known about libraries come in. Where
many short statements have names and meanings, such as rules, they are entries of YAML beside the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from kafka_telemetry_lake.udfs.yaml_text import from_yaml

MARKER = re.compile(r"(?<![:?\w]):([a-z][a-z0-9_]*)")


def quoted(text: str, dialect: str = "spark") -> str:
    """A text as a literal."""
    from sqlglot import exp  # noqa: PLC0415  # Spark's workers need no parser

    return exp.Literal.string(text).sql(dialect)


def filled(sql: str, values: Mapping[str, str]) -> str:
    """A statement or expression with the SQL of each value in place of its marker; markers without a value stay."""
    return MARKER.sub(lambda marker: values.get(marker[1], marker[0]), sql)


def sql_yaml(folder: str, name: str) -> Any:
    """The content of a YAML file below `sql/`."""
    return from_yaml((files("kafka_telemetry_lake.sql") / folder / name).read_text("utf-8"))


def sql_file(folder: str, name: str) -> str:
    """The statement of a file in a folder of `sql/`, without its comments: `run_query` opens what a text names."""
    lines = (files("kafka_telemetry_lake.sql") / folder / f"{name}.sql").read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))
