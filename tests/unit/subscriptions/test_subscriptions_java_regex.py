"""Java's patterns as Python's, against committed answers of java.util.regex (tests/kafka/subscription_oracle.py)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_telemetry_lake.udfs.subscriptions.code_points import (
    LAST,
    ascii_case_folded,
    intersection,
    negated,
    of,
    python_pattern,
    union,
)
from kafka_telemetry_lake.udfs.subscriptions.java_characters import InvalidPatternError, UnsupportedPatternError
from kafka_telemetry_lake.udfs.subscriptions.java_regex import compile_java

ROWS = json.loads((Path(__file__).parents[2] / "data" / "java_patterns.json").read_text())


def test_translated_patterns_match_what_java_matches() -> None:
    wrong, compared = [], 0
    for row in ROWS:
        try:
            compiled = compile_java(row["pattern"])
        except UnsupportedPatternError:
            continue
        except InvalidPatternError:
            assert row["matches"] is None, f"Java takes {row['pattern']!r}"
            continue
        assert row["matches"] is not None, f"Java refuses {row['pattern']!r}"
        matched = [compiled.fullmatch(text) is not None for text in row["inputs"]]
        wrong += [
            (row["pattern"], text) for text, a, b in zip(row["inputs"], matched, row["matches"], strict=True) if a != b
        ]
        compared += len(matched)
    assert wrong == []
    assert compared > 9000


@pytest.mark.parametrize(
    ("pattern", "construct"),
    [
        (r"\bab\b", r"'\\b' (word boundary"),
        (r"(a)\1", r"'\\1' (back reference)"),
        (r"(?<n>a)\k<n>", r"'\\k' (back reference)"),
        (r"\p{L}", r"'\\p{L}' (depends on the Unicode version"),
        (r"\pL", r"'\\p{L}' (depends on the Unicode version"),
        (r"(?i)\p{Lower}", r"under flag 'i' (depends on the broker's Java version)"),
        ("(?m)a$", "flag 'm' (multiline mode)"),
        ("(?x)a b", "flag 'x' (comments mode)"),
        ("(?u)a", "flag 'u' (Unicode case"),
        ("[^a[b]]", "'[^...[...]]' (depends on the broker's Java version)"),
        ("[a&&b]", "'&&' (an intersection other than [x&&[y]])"),
        ("[a&&[b]&&[c]]", "'&&' (an intersection other than [x&&[y]])"),
        ("(^|a){2}", "an anchor or look-around in a repeated group"),
        ("(?=a)*a", "'(?=' with a quantifier"),
        ("^*a", "'^' with a quantifier"),
        ("a{2}{3}", "'{' (a repetition of nothing)"),
        (r"\R", "linebreak matcher"),
        (r"\X", "grapheme cluster"),
        (r"\Ga", "end of the previous match"),
        (r"\N{DIGIT ONE}", "character by name"),
        (r"\uD83D\uDE00", "half of a surrogate pair"),
        (r"[!-\v]", r"'\\v' in a range"),
        ("(?<=a|bc)d", "look-behind requires fixed-width pattern"),
    ],
)
def test_what_is_not_translated_is_named(pattern: str, construct: str) -> None:
    with pytest.raises(UnsupportedPatternError) as raised:
        compile_java(pattern)
    assert repr(pattern) in str(raised.value)
    assert construct.replace("\\\\", "\\") in str(raised.value)


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("*a", "dangling '*'"),
        ("(a", "unclosed group"),
        ("a)", "unmatched closing ')'"),
        ("[a", "unclosed character class"),
        ("[b-a]", "illegal character range"),
        ("a{2,1}", "illegal repetition range"),
        (r"\y", r"illegal escape '\y'"),
        ("(?z)a", "unknown inline flag 'z'"),
        ("(?<n>a)(?<n>b)", "group 'n' is already defined"),
        ("a\\", "ends with a backslash"),
    ],
)
def test_what_java_refuses_is_refused(pattern: str, what: str) -> None:
    with pytest.raises(InvalidPatternError, match=r"is no regular expression of Java") as raised:
        compile_java(pattern)
    assert repr(pattern) in str(raised.value)
    assert what in str(raised.value)


def test_sets_of_code_points() -> None:
    letters = union(of("abc"), of("cde"))
    assert letters == ((0x61, 0x65),)
    assert negated(letters) == ((0, 0x60), (0x66, LAST))
    assert negated(negated(letters)) == letters
    assert intersection(letters, of("bxe")) == of("be")
    assert ascii_case_folded(of("aZé")) == of("AaZzé")
    assert python_pattern(of("a")) == "a"
    assert python_pattern(of("a-")) == r"[\u002da]"
    assert python_pattern(()) == "(?!)"
