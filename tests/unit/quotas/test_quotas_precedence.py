"""The quota in force: Kafka's eight levels, most specific first."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_telemetry_lake.udfs.quotas.limits import (
    DEFAULT,
    UNLIMITED,
    EffectiveQuota,
    effective_quota,
    effective_quotas,
)

# Entity of each level for client app of user ann, and the bucket that brokers then count in (DefaultQuotaCallback).
LEVELS = [
    (("ann", "app"), ("ann", "app")),
    (("ann", DEFAULT), ("ann", "app")),
    (("ann", ""), ("ann", "")),
    ((DEFAULT, "app"), ("ann", "app")),
    ((DEFAULT, DEFAULT), ("ann", "app")),
    ((DEFAULT, ""), ("ann", "")),
    (("", "app"), ("", "app")),
    (("", DEFAULT), ("", "app")),
]


@pytest.mark.parametrize("levels", list(itertools.product([False, True], repeat=8)))
def test_q8_the_most_specific_of_the_configured_levels_counts(levels: tuple[bool, ...]) -> None:
    limits = {entity: 10.0 * (n + 1) for n, (entity, _) in enumerate(LEVELS) if levels[n]}
    limits |= {
        ("bob", "app"): 1.0,
        ("ann", "other"): 2.0,
        ("bob", ""): 3.0,
        ("", "other"): 4.0,
        (DEFAULT, "other"): 5.0,
    }
    if True in levels:
        first = levels.index(True)
        expected = EffectiveQuota(10.0 * (first + 1), first + 1, *LEVELS[first][1])
    else:
        expected = EffectiveQuota(None, 0, "ann", "app")
    assert effective_quota(limits, "ann", "app") == expected


@pytest.mark.parametrize("limit", [UNLIMITED, float("inf"), 1e30])
def test_q9_an_exemption_wins_over_less_specific_limits(limit: float) -> None:
    limits = {("", DEFAULT): 100.0, ("", "mirror"): limit}
    assert effective_quota(limits, "ann", "mirror") == EffectiveQuota(None, 7, "", "mirror")
    assert effective_quota(limits, "ann", "app") == EffectiveQuota(100.0, 8, "", "app")


def test_q8_a_limit_of_zero_is_a_limit() -> None:
    assert effective_quota({("ann", ""): 0.0}, "ann", "app") == EffectiveQuota(0.0, 3, "ann", "")


_NAMES = st.sampled_from(["ann", "bob", "app", DEFAULT, ""])


@given(
    st.dictionaries(st.tuples(_NAMES, _NAMES), st.floats(0, 1e6), max_size=6),
    st.lists(st.tuples(st.none() | _NAMES, st.none() | _NAMES), max_size=12),
)
def test_columns_are_resolved_as_single_pairs(
    limits: dict[tuple[str, str], float], pairs: list[tuple[str | None, str | None]]
) -> None:
    users = pa.chunked_array([pa.array([user for user, _ in pairs], pa.string())])
    client_ids = pa.chunked_array([pa.array([client_id for _, client_id in pairs], pa.string())])
    found = effective_quotas(limits, users, client_ids)
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        tuple(effective_quota(limits, user or "", client_id or "")) for user, client_id in pairs
    ]
