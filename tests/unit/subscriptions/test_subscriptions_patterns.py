"""Patterns of subscriptions, against committed answers of java.util.regex (tests/kafka/subscription_oracle.py)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest

from kafka_telemetry_lake.udfs.subscriptions.patterns import (
    InvalidPatternError,
    UnsupportedPatternError,
    matches,
)

ROWS = json.loads((Path(__file__).parents[2] / "data" / "java_patterns.json").read_text())


def test_what_is_taken_of_patterns_matches_what_java_matches() -> None:
    wrong, compared = [], 0
    for row in ROWS:
        try:
            matched = matches(pa.array(row["inputs"], pa.string()), row["pattern"]).to_pylist()
        except UnsupportedPatternError:
            continue
        except InvalidPatternError:
            assert row["matches"] is None, f"Java takes {row['pattern']!r}"
            continue
        assert row["matches"] is not None, f"Java refuses {row['pattern']!r}"
        wrong += [
            (row["pattern"], text) for text, a, b in zip(row["inputs"], matched, row["matches"], strict=True) if a != b
        ]
        compared += len(matched)
    assert wrong == []
    assert compared > 9000


@pytest.mark.parametrize(
    ("pattern", "taken", "others"),
    [
        ("orders-.*", ["orders-", "orders-1"], ["order", "my-orders-1", "orders-\n", "orders-\x85", "orders-\u2028"]),
        ("^(?:billing|orders)-[0-9]+$", ["billing-1", "orders-22"], ["orders-", "orders-1\n", "^orders-1$"]),
        (r"3\.[0-9]\.\d{1,2}", ["3.9.1"], ["3x9.1", "3.9.١"]),
        (r"[\w.-]+@[^@]{2,}?", ["a.b-c@de"], ["é@de", "a@b"]),
        (r"a\$", ["a$"], ["a"]),
        ("", [""], ["a"]),
        ("(?i)ORDERS-[a-b_]k", ["orders-ak", "Orders-_K", "ORDERS-BK"], ["orders-a\u212a", "order\u017f-ak"]),
    ],
)
def test_patterns_as_people_write_them(pattern: str, taken: list[str], others: list[str]) -> None:
    assert matches(pa.array([*taken, *others, None]), pattern).to_pylist() == [
        *[True] * len(taken), *[False] * len(others), None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "pattern",
    [
        r"\bab\b", r"(a)\1", r"(?<n>a)\k<n>", r"\p{L}", r"\pL", "(?m)a$", "(?x)a b", "a(?i)b", "(?i)[!-b]", "(?i)[a-Z]",
        "(?!internal-).*", "(?>a)", "a*+", "a{2}{3}", "a+*", "^*a", "a^", "a$b", "a$|b", r"\R", r"\x41", r"\Qa\E",
        r"\s", r"\N{DIGIT ONE}", r"[!-\v]", "[a[b]]", "[a&&[b]]", "[a&b]", r"[\d-z]", "[]a]", "[", "[b-a]", "a{2,1}",
        "a{1001}", "((a{99}){99}){99}", "*a", "{2}", "a\\", r"\y", "(?z)a", r"\é",
    ],
)  # fmt: skip
def test_what_java_may_read_otherwise_or_refuse_is_unknown(pattern: str) -> None:
    with pytest.raises(UnsupportedPatternError) as raised:
        matches(pa.array(["a"]), pattern)
    assert repr(pattern) in str(raised.value)


@pytest.mark.parametrize(
    ("pattern", "what"), [("(a", "unclosed group"), ("(a|(b)", "unclosed group"), ("a)", "unmatched closing ')'")]
)
def test_what_java_refuses_is_refused(pattern: str, what: str) -> None:
    with pytest.raises(InvalidPatternError) as raised:
        matches(pa.array(["a"]), pattern)
    assert str(raised.value) == f"pattern {pattern!r} is no regular expression of Java: {what}"


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+b", "(.*)*x", "((a*)*)*b", "(a?){50}a{50}b"])
def test_no_pattern_takes_longer_than_in_proportion_to_the_text(pattern: str) -> None:
    """Each of these takes a backtracking engine longer than anyone waits."""
    begun = time.process_time()
    assert matches(pa.array(["a" * 100_000]), pattern).to_pylist() == [False]
    assert time.process_time() - begun < 2
