"""Turns columns of a query's result into text where Arrow's types would lose their values."""

from __future__ import annotations

from typing import Any

import duckdb

# DuckDB's types that Arrow gets without their zone, with another number (2^128 - 1 as -1), or as bytes of an own form.
ONLY_TEXT = {"bignum", "bit", "geometry", "time with time zone", "uhugeint", "variant", "varint"}
NESTED = {"array", "list", "map", "struct", "tuple", "union"}


def as_arrow_holds(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The same rows, with `ONLY_TEXT` as the text that DuckDB shows for them, in lists, maps and structs too."""
    casts = [_cast(kind) for kind in relation.types]
    if not any(casts):
        return relation
    places = [f"c{number}" for number in range(len(casts))]  # two columns may have one name
    items = [
        f"{place if cast is None else f'CAST({place} AS {cast})'} AS {_quoted(name)}"
        for place, cast, name in zip(places, casts, relation.columns, strict=True)
    ]
    answer = relation.query("answer", f"SELECT {', '.join(items)} FROM answer AS answer({', '.join(places)})")
    return relation if answer is None else answer  # a SELECT has one


def _cast(kind: Any) -> str | None:
    """The type that a column is cast to; None: it stays."""
    if kind.id in ONLY_TEXT:
        return "VARCHAR"
    if kind.id not in NESTED:
        return None
    sizes = 1 if kind.id == "array" else 0  # beside the type of its items, how many there are
    children = [(name, child, _cast(child)) for name, child in kind.children[: len(kind.children) - sizes]]
    if all(cast is None for *_, cast in children):
        return None
    types = [cast or str(child) for _, child, cast in children]
    fields = [f"{_quoted(name)} {cast}" for (name, *_), cast in zip(children, types, strict=True)]
    whole = {
        "list": f"{types[0]}[]",
        "array": f"{types[0]}[{kind.children[-1][1]}]",
        "map": f"MAP({', '.join(types)})",
        "struct": f"STRUCT({', '.join(fields)})",
    }
    is_named = all(name for name, *_ in children)
    return whole.get(kind.id, "VARCHAR") if is_named else "VARCHAR"  # a union, and a struct without names, as text


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
