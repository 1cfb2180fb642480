"""How the dashboard shows things: gaps stay gaps, numbers are short, text of clients is text."""

from __future__ import annotations

import pandas as pd
import pytest

from dashboards.show import plain, short, with_gaps


def test_a_line_breaks_where_a_window_is_missing() -> None:
    rows = pd.DataFrame(
        {"at_ms": [0, 1000, 4000, 0, 1000], "y": [1.0, 2.0, 3.0, 4.0, 5.0], "by": ["a", "a", "a", "b", "b"]}
    )
    shown = with_gaps(rows, "y", "by", 1)
    assert shown["at_ms"].tolist() == [0, 1000, 2000, 4000, 0, 1000]
    assert shown["y"].fillna(-1).tolist() == [1.0, 2.0, -1.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (9999, "9,999"),
        (12_345, "12.3 k"),
        (1_540_000, "1.54 M"),
        (2e9, "2 G"),
        (0.1234, "0.123"),
        (None, "–"),
    ],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert short(value) == text


def test_text_of_clients_has_no_meaning_for_markdown() -> None:
    assert plain("[a](b) <i> $x$ :red[b] *c*\nd") == r"\[a\]\(b\) \<i\> \$x\$ \:red\[b\] \*c\* d"
