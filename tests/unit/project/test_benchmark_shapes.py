"""The load shapes of the end-to-end benchmark, and the figures that its rounds give."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from benchmarks.comparison import (
    BEGIN,
    END,
    PAGE,
    Comparison,
    Round,
    figures,
    page,
    ranges,
    stored_rounds,
    table,
)
from benchmarks.fleet import CUMULATIVE, DELTA, Landing
from benchmarks.shapes import SHAPES, SIZES, Shape
from kafka_telemetry_lake.udfs.conversion.compression import decompress

PUSHES = 2_000
NAMED = {shape.name: shape for shape in SHAPES}


def landings(shape: Shape, pushes: int = PUSHES) -> list[Landing]:
    return list(shape.fleets(pushes)[0].landings(0, pushes))


def metrics(landing: Landing) -> list[Metric]:
    data = MetricsData.FromString(landing.payload)
    return [
        metric for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
    ]


def temporalities(landing: Landing) -> set[int]:
    return {
        getattr(metric, kind).aggregation_temporality
        for metric in metrics(landing)
        if (kind := metric.WhichOneof("data")) in ("sum", "histogram", "exponential_histogram")
    }


def header(landing: Landing, name: str) -> str:
    return dict(landing.headers)[name].decode()


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=NAMED)
def test_the_peers_get_the_same_pushes_decompressed(shape: Shape) -> None:
    fleet, plain = shape.fleets(100)
    ours, theirs = list(fleet.landings(0, 100)), list(plain.landings(0, 100))
    codecs = pa.array([header(landing, "compression_type") for landing in ours])
    data = decompress(pa.array([landing.payload for landing in ours], pa.binary()), codecs).data
    assert data.to_pylist() == [landing.payload for landing in theirs]
    assert {header(landing, "compression_type") for landing in theirs} == {"none"}
    ids = [landing.client_instance_id for landing in ours]
    assert ids == [landing.client_instance_id for landing in theirs]


def test_no_client_is_in_two_shapes() -> None:
    ids = [{landing.client_instance_id for landing in landings(shape)} for shape in SHAPES]
    assert len(set().union(*ids)) == sum(len(each) for each in ids)


def test_the_last_push_of_a_fleet_lands_now() -> None:
    fleet, _ = NAMED["cumulative"].fleets(PUSHES)
    first, last = fleet.landing(0).landed_ms, fleet.landing(PUSHES).landed_ms
    assert last - first == PUSHES / 400 * 300_000


def test_the_cumulative_shape_is_few_clients_and_many_pushes_of_each() -> None:
    all_landings = landings(NAMED["cumulative"])
    pushes = Counter(landing.client_instance_id for landing in all_landings)
    assert len(pushes) == 400
    assert set(pushes.values()) == {5}
    assert set().union(*map(temporalities, all_landings)) == {CUMULATIVE}


@pytest.mark.slow
def test_each_codec_is_used_with_both_temporalities() -> None:
    used = {
        (header(landing, "compression_type"), temporality)
        for landing in landings(NAMED["codecs"])
        for temporality in temporalities(_plain(landing))
    }
    assert used == {
        (codec, kind) for codec in ("none", "zstd", "lz4", "gzip", "snappy") for kind in (CUMULATIVE, DELTA)
    }


def test_each_client_of_the_shape_once_pushes_once() -> None:
    assert len({landing.client_instance_id for landing in landings(NAMED["once"])}) == PUSHES


def test_cumulative_histograms_grow_and_stay_consistent() -> None:
    shape = NAMED["histograms"]
    fleet, _ = shape.fleets(3 * 2_000)
    kinds = set()
    for client in range(20):
        for before, after in pairwise(metrics(fleet.landing(client + turn * 2_000)) for turn in range(3)):
            for old, new in zip(before, after, strict=True):
                kind = new.WhichOneof("data") or ""
                kinds.add(kind)
                for earlier, later in zip(getattr(old, kind).data_points, getattr(new, kind).data_points, strict=True):
                    assert later.count == earlier.count + 7
                    assert later.start_time_unix_nano == earlier.start_time_unix_nano
                    assert later.time_unix_nano == earlier.time_unix_nano + 300 * 10**9
                    buckets = later.bucket_counts if kind == "histogram" else later.positive.bucket_counts
                    assert sum(buckets) + getattr(later, "zero_count", 0) == later.count
    assert kinds == {"histogram", "exponential_histogram"}


def _plain(landing: Landing) -> Landing:
    codec = pa.array([header(landing, "compression_type")])
    (payload,) = decompress(pa.array([landing.payload], pa.binary()), codec).data.to_pylist()
    return Landing(landing.client_instance_id, landing.landed_ms, payload, landing.points, landing.headers)


def a_round(shape: str, size: str, side: str, cpu_s: float) -> Round:
    return Round(shape, size, side, SIZES[size], cpu_s, 1.0, SIZES[size] * 2**20)


def of_all_shapes() -> list[Round]:
    """The job needs 1 CPU-s and 1 us a point; the Collector 2 us a point, of histograms 1 us."""
    rounds = []
    for shape in NAMED:
        for size, points in SIZES.items():
            each = 1e-6 if shape == "histograms" else 2e-6
            rounds += [a_round(shape, size, "job", 1 + points / 1e6), a_round(shape, size, "collector", points * each)]
    return [*rounds, a_round("stock", "5m", "naive_spark", 60)]


def test_figures_of_shapes_sizes_and_points_and_of_the_stock_fleet_at_the_largest_size() -> None:
    named = figures(of_all_shapes())
    assert named["end_to_end_once_2m_points_per_cpu_s"] == pytest.approx(2e6 / 3)
    assert named["end_to_end_once_2m_vs_collector"] == pytest.approx(4 / 3)
    assert named["end_to_end_once_500k_vs_collector"] == pytest.approx(1 / 1.5)
    assert "end_to_end_once_5m_vs_naive_spark" not in named
    assert named["end_to_end_codecs_fixed_cpu_s"] == pytest.approx(1)
    assert named["end_to_end_codecs_us_per_point"] == pytest.approx(1)
    assert named["end_to_end_codecs_collector_fixed_cpu_s"] == pytest.approx(0, abs=1e-9)
    assert named["end_to_end_codecs_collector_us_per_point"] == pytest.approx(2)
    assert Comparison(of_all_shapes()).fixed_and_per_point("stock", "naive_spark") is None
    assert named["end_to_end_points_per_cpu_s"] == pytest.approx(5e6 / 6)
    assert named["end_to_end_peak_rss_mb"] == 5_000_000
    assert named["end_to_end_collector_points_per_cpu_s"] == pytest.approx(5e5)
    assert named["end_to_end_vs_collector"] == pytest.approx(10 / 6)
    assert named["end_to_end_vs_naive_spark"] == pytest.approx(10)
    assert named["end_to_end_vs_collector_worst"] == pytest.approx(2 / 3)  # of two million points and more


def test_there_is_no_worst_shape_before_all_are_measured() -> None:
    rounds = [each for each in of_all_shapes() if (each.shape, each.size) != ("once", "5m")]
    assert "end_to_end_vs_collector_worst" not in figures(rounds)


def test_a_side_with_more_rounds_has_their_median() -> None:
    rounds = [a_round("stock", "5m", side, cpu_s) for cpu_s in (5, 10, 50) for side in ("job", "collector")]
    assert figures(rounds)["end_to_end_points_per_cpu_s"] == pytest.approx(5e5)


def test_the_table_has_a_row_for_each_size_and_fit_and_the_range_is_over_all_shapes_of_two_million_points() -> None:
    lines = list(table(of_all_shapes()))
    assert "| once, 2m | 3.0 | 4.0 |  | 1.33 |  |" in lines
    assert "| stock, 5m | 6.0 | 10.0 | 60.0 | 1.67 | 10.00 |" in lines
    assert "| codecs | 1.0 + 1.00 | 0.0 + 2.00 |  |" in lines
    assert list(ranges(of_all_shapes())) == [
        "Collector: 0.7 to 1.7 times the job's CPU at 2m waiting points and more",
        "plain Spark job: 10.0 to 10.0 times the job's CPU at 2m waiting points and more",
    ]


def test_the_tables_of_the_page_are_those_of_the_stored_rounds() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text, stored_rounds())


def test_tables_replace_those_before() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    written = page(text, of_all_shapes())
    assert written.startswith(f"before\n{BEGIN}\n| CPU-s of a round |")
    assert written.endswith(f"|\n{END}\nafter\n")
    assert "old" not in written
    assert page(written, of_all_shapes()) == written
