"""Values of a query's result as Arrow, JSON and people have them, whatever their type: none ends in an error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.types as pat

from kafka_telemetry_lake.pipelines.query.printable import printable_json

NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
SECOND, DAY = 10**9, 86_400 * 10**9  # nanoseconds
MONTHS = 12
# DuckDB's infinite values: the greatest number and its negative, of the type's own width.
INFINITE = {2**63 - 1: "infinity", -(2**63) + 1: "-infinity"}
INFINITE_DAYS = {2**31 - 1: "infinity", -(2**31) + 1: "-infinity"}
EPOCH = datetime(1970, 1, 1)  # shown as UTC
FIRST_DAY, LAST_DAY = (date.min - EPOCH.date()).days, (date.max - EPOCH.date()).days


def plain_values(column: pa.Array) -> list[Any]:
    """The values of a column as JSON has them.

    NaN and infinite floats are None, bigints are exact, times are ISO 8601 in UTC, maps and structs are dicts, bytes
    are hexadecimal. Intervals are text that DuckDB reads back (``3 days 4:05:06.789``), infinite times ``infinity``,
    and decimals that no float shows exactly are text.
    """
    kind = column.type
    if isinstance(kind, pa.ExtensionType):
        return plain_values(column.storage)
    if pat.is_dictionary(kind):
        return plain_values(column.dictionary_decode())
    if nested := next((values for is_it, values in _NESTED if is_it(kind)), None):
        valid = column.is_valid().to_pylist()
        return [value if is_there else None for value, is_there in zip(nested(column), valid, strict=True)]
    convert = next((convert for is_it, convert in _FLAT if is_it(kind)), None)
    if convert is None:
        return column.to_pylist() if _is_json(kind) else [None if v is None else str(v) for v in column.to_pylist()]
    return convert(column)


def key_text(value: Any) -> str:
    """The key of a JSON object for a plain value."""
    return value if isinstance(value, str) else printable_json(value)


def interval_text(months: int, days: int, nanoseconds: int) -> str:
    """An interval, such as ``1 year 2 months 3 days 4:05:06.789``; of none of these ``0:00:00``."""
    years, months = divmod(abs(months), MONTHS) if months >= 0 else (-(-months // MONTHS), -(-months % MONTHS))
    units = [(years, "year"), (months, "month"), (days, "day")]
    words = [f"{number} {unit}{'' if abs(number) == 1 else 's'}" for number, unit in units if number]
    if nanoseconds or not words:
        words.append(("-" if nanoseconds < 0 else "") + _clock(abs(nanoseconds)))
    return " ".join(words)


def _is_json(kind: pa.DataType) -> bool:
    return any(
        is_it(kind) for is_it in (pat.is_null, pat.is_boolean, pat.is_integer, pat.is_string, pat.is_large_string)
    )


def _each(convert: Callable[[Any], Any]) -> Callable[[pa.Array], list[Any]]:
    return lambda column: [None if value is None else convert(value) for value in column.to_pylist()]


def _numbers(column: pa.Array) -> list[int | None]:
    """The numbers that a column of times consists of."""
    width = pa.int64() if column.type.bit_width == 64 else pa.int32()  # bits
    numbers: list[int | None] = column.view(width).to_pylist()
    return numbers


def _times(column: pa.Array) -> list[Any]:
    scale = NANOS[column.type.unit]
    return [None if number is None else _time_text(number, scale) for number in _numbers(column)]


def _time_text(number: int, scale: int) -> str:
    if number in INFINITE:
        return INFINITE[number]
    days, nanos = divmod(number * scale, DAY)
    return f"{_day_text(days)}T{_time_of_day(nanos)}Z"


def _days(column: pa.Array) -> list[Any]:
    if pat.is_date64(column.type):
        return [None if number is None else _day_text(number // 86_400_000) for number in _numbers(column)]
    return [None if n is None else INFINITE_DAYS.get(n) or _day_text(n) for n in _numbers(column)]


def _day_text(days: int) -> str:
    if FIRST_DAY <= days <= LAST_DAY:
        return (EPOCH.date() + timedelta(days)).isoformat()
    # 400 years have 146,097 days. ISO 8601 has a sign before years of more than four digits, and a year 0 before 1.
    periods = (days - FIRST_DAY) // 146_097
    near = EPOCH.date() + timedelta(days - periods * 146_097)
    year = near.year + periods * 400
    return f"{'-' if year < 0 else '+' if year > 9999 else ''}{abs(year):04}{near.isoformat()[4:]}"


def _clocks(column: pa.Array) -> list[Any]:
    scale = NANOS[column.type.unit]
    return [None if number is None else _time_of_day(number * scale) for number in _numbers(column)]


def _durations(column: pa.Array) -> list[Any]:
    scale = NANOS[column.type.unit]
    return [None if number is None else interval_text(0, 0, number * scale) for number in _numbers(column)]


def _time_of_day(nanos: int) -> str:
    """A time of day as ``datetime.isoformat`` has it, but with nine digits where there are nanoseconds."""
    return _clock(nanos, hours=2, digits=(6, 9))


def _clock(nanos: int, hours: int = 1, digits: tuple[int, ...] = tuple(range(1, 10))) -> str:
    """Hours, minutes and seconds, with the first number of digits after the point that is exact."""
    seconds, fraction = divmod(nanos, SECOND)
    text = f"{seconds // 3600:0{hours}}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if not fraction:
        return text
    after = next(number for number in digits if fraction % 10 ** (9 - number) == 0)
    return f"{text}.{fraction // 10 ** (9 - after):0{after}}"


def _float(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _decimal(value: Decimal) -> int | float | str:
    if value == value.to_integral_value() and int(value.as_tuple().exponent) >= 0:
        return int(value)
    return near if Decimal(repr(near := float(value))) == value else str(value)


def _lists(column: pa.Array) -> list[Any]:
    values, bounds = _flat(column, column.values)
    return [values[start:end] for start, end in bounds]


def _fixed_lists(column: pa.Array) -> list[Any]:
    size = column.type.list_size
    values = plain_values(column.values.slice(column.offset * size, len(column) * size))
    return [values[number * size : (number + 1) * size] for number in range(len(column))]


def _maps(column: pa.Array) -> list[Any]:
    keys, bounds = _flat(column, column.keys)
    items, _ = _flat(column, column.items)
    if pat.is_floating(column.type.key_type):  # NaN and infinity are keys too
        first, last = _ends(column)
        keys = [str(key) for key in column.keys.slice(first, last - first).to_pylist()]
    names = [key_text(key) for key in keys]
    return [dict(zip(names[start:end], items[start:end], strict=True)) for start, end in bounds]


def _ends(column: pa.Array) -> tuple[int, int]:
    return column.offsets[0].as_py(), column.offsets[-1].as_py()


def _flat(column: pa.Array, values: pa.Array) -> tuple[list[Any], Iterable[tuple[int, int]]]:
    """The plain values of all rows of a list, and where those of each row start and end."""
    first, last = _ends(column)
    offsets = [offset - first for offset in column.offsets.to_pylist()]
    return plain_values(values.slice(first, last - first)), pairwise(offsets)


def _structs(column: pa.Array) -> list[Any]:
    names = [field.name for field in column.type]
    fields = [plain_values(field) for field in column.flatten()]
    return [dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True)] if fields else [{}] * len(column)


def _unions(column: pa.Array) -> list[Any]:
    """The values of DuckDB's unions, without their tags."""
    members = [plain_values(column.field(number)) for number in range(column.type.num_fields)]
    return [members[code][row] for row, code in enumerate(column.type_codes.to_pylist())]


_Is = Callable[[pa.DataType], bool]
_NESTED: list[tuple[_Is, Callable[[pa.Array], list[Any]]]] = [
    (pat.is_map, _maps),
    (pat.is_fixed_size_list, _fixed_lists),
    (pat.is_list, _lists),
    (pat.is_large_list, _lists),
    (pat.is_struct, _structs),
    (pat.is_union, _unions),
]
_FLAT: list[tuple[_Is, Callable[[pa.Array], list[Any]]]] = [
    (pat.is_floating, _each(_float)),
    (pat.is_timestamp, _times),
    (pat.is_date, _days),
    (pat.is_time, _clocks),
    (pat.is_duration, _durations),
    (pat.is_interval, _each(lambda value: interval_text(*value))),
    (pat.is_decimal, _each(_decimal)),
    (
        lambda kind: any(is_it(kind) for is_it in (pat.is_binary, pat.is_large_binary, pat.is_fixed_size_binary)),
        _each(lambda value: value.hex()),
    ),
]


# DuckDB's types that Arrow gets without their zone, with another number (2^128 - 1 as -1), or as bytes of an own form.
ONLY_TEXT = {"bignum", "bit", "geometry", "time with time zone", "uhugeint", "variant", "varint"}
NESTED = {"array", "list", "map", "struct", "tuple", "union"}


def as_arrow_holds(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The rows, with `ONLY_TEXT` as the text that DuckDB shows for them, in lists, maps and structs too."""
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
    sizes = 1 if kind.id == "array" else 0  # besides the type of its items, how many there are
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
