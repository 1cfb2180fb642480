"""A counter with few series out of many: each increment in exactly one series, and no series ever falls."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafka_telemetry_lake.pipelines.export.families import HALF_LIFE_S, RETIRED, Family

STALE_S = 3600.0


def family(top: int = 2) -> Family:
    return Family(("cluster_id", "client_id"), top, STALE_S, 0.0)


def rows(**increments: float) -> list[tuple[tuple[str, ...], float, float]]:
    return [(("c", name), increase, 0.0) for name, increase in increments.items()]


def shown(found: Family) -> dict[str, float]:
    return {"rest" if labels is None else labels[1]: value for labels, value in found.exported()}


def test_a_counter_never_falls_and_is_exact_again_when_increments_make_up_for_a_negative_one() -> None:
    found = family()
    values = []
    for increase in (10, -4, 3, 1, 5):
        found.add(rows(a=increase), None)
        values.append(shown(found)["a"])
    assert values == [10, 10, 10, 10, 15]


def test_a_stale_series_is_dropped_and_goes_on_when_it_comes_back() -> None:
    found = family()
    found.add(rows(a=5), None)
    found.age(STALE_S)
    assert shown(found) == {"a": 5}
    found.age(STALE_S + 1)
    assert shown(found) == {}
    found.add([(("c", "a"), 2, STALE_S + 1)], None)
    assert shown(found) == {"a": 7}


def test_the_busiest_get_the_series_of_slower_ones_and_begin_at_zero() -> None:
    found = family()
    found.add(rows(a=100, b=1), None)
    found.age(1)
    found.add(rows(d=50), None)
    found.age(2)
    assert shown(found) == {"a": 100, "b": 1, "rest": 50}  # too early to say who is busy
    found.add(rows(d=50), None)
    found.age(HALF_LIFE_S)
    assert shown(found) == {"a": 100, "d": 0, "rest": 100}
    found.add(rows(d=3), None)
    assert shown(found) == {"a": 100, "d": 3, "rest": 100}
    found.add(rows(b=1000), None)
    found.age(2 * HALF_LIFE_S)
    assert shown(found) == {"d": 3, "b": 1, "rest": 1100}  # a was the slowest by then, and b goes on with its own count


def test_what_is_kept_is_bounded() -> None:
    found = family(top=10)
    for step in range(200):
        names = {f"{step}-{n}": 1e6 / (n + 1) for n in range(20)}
        found.add([(("c", name), value, step * 60.0) for name, value in names.items()], (5, step * 60.0))
        found.age(step * 60.0)
    assert len(list(found.exported())) <= 11
    assert len(found.stored()["series"]) <= 10 + RETIRED * 10


def test_a_note_gives_the_same_series_again_and_fewer_if_fewer_are_asked_for() -> None:
    found = family(top=3)
    found.add(rows(a=5, b=4, d=3, e=1), None)
    again = family(top=3)
    again.restore(found.stored())
    assert shown(again) == shown(found) == {"a": 5, "b": 4, "d": 3, "rest": 1}
    less = family(top=1)
    less.restore(found.stored())
    assert shown(less) == {"a": 5, "rest": 1}


@settings(max_examples=150)
@example([({name: 1}, 2000, False) for name in "abcdefgh"])  # all retire, and the first of them are dropped
# Nobody is promoted so soon after a restart; then d gets a series that is free, and isn't promoted to another one.
@example([({"a": 0, "b": 0, "c": 0}, 1271, False), ({}, 2000, True), ({"d": 0}, 330, False), ({"d": 1}, 270, False)])
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 100), max_size=6),
            st.integers(0, 2000),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_series_never_fall_and_add_up_to_all_increments(
    steps: list[tuple[dict[str, int], int, bool]],
) -> None:
    found, now, total, before = family(top=3), 0.0, 0, dict[str, float]()
    is_full = False  # so many are retired that some may have been dropped, with what they had counted
    for increments, seconds, restarts in steps:
        told = sorted(increments.items(), key=lambda item: -item[1])
        found.add([(("c", name), value, now) for name, value in told], None)
        total += sum(increments.values())
        now += seconds
        found.age(now)
        if restarts:
            again = Family(found.labels, 3, STALE_S, now)
            again.restore(found.stored())
            found = again
        after = shown(found)
        assert all(value >= before.get(name, 0) for name, value in after.items())
        before |= after
        stored = found.stored()
        rest = stored["other"]["value"] if stored["other"] else 0
        kept = sum(row["value"] for row in stored["series"])
        names = {row[found.labels[-1]] for row in stored["series"]}
        before = {
            name: value for name, value in before.items() if name in names or name == "rest"
        }  # else it begins at 0
        is_full |= sum(not row["own"] for row in stored["series"]) == RETIRED * 3
        assert kept + rest == total or (is_full and kept + rest < total)
