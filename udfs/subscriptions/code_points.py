"""Sets of code points, as sorted, disjoint, inclusive ranges: what a character class of a regular expression is."""

from __future__ import annotations

from collections.abc import Iterable

LAST = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]


def ranges(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """The set of all code points in the inclusive pairs, which may overlap."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pairs):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def of(text: str) -> Ranges:
    """The set of a text's characters."""
    return ranges((ord(char), ord(char)) for char in text)


def union(*sets: Ranges) -> Ranges:
    return ranges(pair for each in sets for pair in each)


def negated(points: Ranges) -> Ranges:
    gaps = []
    start = 0
    for low, high in points:
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        gaps.append((start, LAST))
    return tuple(gaps)


def intersection(left: Ranges, right: Ranges) -> Ranges:
    return negated(union(negated(left), negated(right)))


def ascii_case_folded(points: Ranges) -> Ranges:
    """The set with the other case of each of its ASCII letters."""
    upper = intersection(points, ((ord("A"), ord("Z")),))
    lower = intersection(points, ((ord("a"), ord("z")),))
    shift = ord("a") - ord("A")
    other = [(low + shift, high + shift) for low, high in upper] + [(low - shift, high - shift) for low, high in lower]
    return union(points, ranges(other))


def python_pattern(points: Ranges) -> str:
    """A pattern of Python's ``re`` that matches one code point of the set, under any flags but IGNORECASE."""
    if len(points) == 1 and points[0][0] == points[0][1]:
        return _escaped(points[0][0])
    if not points:
        return "(?!)"  # an empty class can't be written: never matches
    return (
        "["
        + "".join(_escaped(low) if low == high else f"{_escaped(low)}-{_escaped(high)}" for low, high in points)
        + "]"
    )


def _escaped(point: int) -> str:
    char = chr(point)
    if char.isascii() and (char.isalnum() or char == "_"):
        return char
    return f"\\U{point:08x}" if point > 0xFFFF else f"\\u{point:04x}"
