"""The points of recorded pushes: how many each client instance pushed of each metric, and how many bytes they took.

A point's names and attributes are in the lake. What else it takes in a push is read from one decoded push of each group
of client instances whose pushes are alike: see `udfs.subscriptions.layout`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.pipelines.ingest.push_files import joined
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.sql_text import quoted
from kafka_telemetry_lake.pipelines.subscriptions.recorded_queries import POINTS_OF, PUSHED, SAMPLES, ask, of
from kafka_telemetry_lake.udfs.conversion.compression import decompress
from kafka_telemetry_lake.udfs.kernels.arrays import Doubles, Int64s
from kafka_telemetry_lake.udfs.subscriptions.layout import POINT, UNSEEN, PushLayout, layout

PART = 1_000_000  # rows of points that hold texts at once, or 32 MiB of them


def read_points(
    lake: str, parts: dict[str, Any], rows: pa.Table
) -> tuple[Int64s, pa.DictionaryArray, Doubles, Doubles]:
    """Of each client instance, kind of its pushes and metric: a row of these pushes, the metric, its points and text.

    Read in parts, of which only numbers are kept. Points of pushes that landed in the meantime are left out.
    """
    instances, attributes = _distinct(rows["client_instance_id"]), _distinct(rows["client_attributes_id"])
    epochs = int(pc.max(rows["epoch"]).as_py()) + 1

    def codes(of: pa.Table) -> Int64s:
        """A number for each key, the same for equal ones; -1: there is no such instance, attributes or epoch."""
        who = pc.index_in(of["client_instance_id"], instances).fill_null(-1).to_numpy().astype(np.int64)
        what = pc.index_in(of["client_attributes_id"], attributes).fill_null(-1).to_numpy()
        epoch, uncertain = of["epoch"].to_numpy(), of["uncertain"].to_numpy().astype(np.int64)
        code: Int64s = ((who * len(attributes) + what) * epochs + epoch) * 2 + uncertain
        return np.where((who < 0) | (what < 0) | (epoch >= epochs), -1, code)

    known, first = np.unique(codes(rows), return_index=True)
    row, metric, points, text = [], list[pa.Array](), [], []
    read = run_query(lake, of(PUSHED + POINTS_OF, parts))
    for part in joined((pa.Table.from_batches([batch]) for batch in read), PART):
        code = codes(part)
        at = np.minimum(np.searchsorted(known, code), len(known) - 1)
        there = known[at] == code
        row.append(first[at[there]])
        metric.append(part["metric"].filter(pa.array(there)).combine_chunks().dictionary_encode())
        points.append(part["points"].to_numpy()[there])
        text.append(part["text"].to_numpy()[there])
    encoded = pa.chunked_array(metric, pa.dictionary(pa.int32(), pa.string())).unify_dictionaries().combine_chunks()
    numbers = [np.concatenate([np.empty(0, kind), *each]) for kind, each in (
        (np.int64, row), (np.float64, points), (np.float64, text),
    )]  # fmt: skip
    return numbers[0], encoded, numbers[1], numbers[2]


def _distinct(values: pa.ChunkedArray) -> pa.Array:
    found = values.unique()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def bytes_of_points(
    lake: str,
    parts: dict[str, Any],
    instances: pa.ChunkedArray,
    groups: Int64s,
    client: Int64s,
    metric: pa.DictionaryArray,
    points: Doubles,
    text: Doubles,
) -> tuple[list[PushLayout], Doubles]:
    """The layout of a push of each group of instances, and the bytes of all points of each row.

    Args:
        instances: the client instance ids.
        groups: the group of each instance.
        client: of each row the instance, then its metric, number of points and bytes of names and attributes.
    """
    shown = _shown(groups, client, points)
    layouts = _layouts(lake, parts, instances.take(pa.array(shown)).to_pylist())
    more = _more(layouts, shown, client, metric, points, text)[groups[client], metric.indices.to_numpy()]
    return layouts, text + points * np.where(np.isnan(more), POINT, more)


def _shown(groups: Int64s, client: Int64s, points: Doubles) -> Int64s:
    """Of each group, the instance with the most points."""
    sums = np.bincount(client, points, len(groups))
    order = np.lexsort((sums, groups))
    shown: Int64s = order[np.append(np.flatnonzero(np.diff(groups[order])), len(order) - 1)]
    return shown


def _layouts(lake: str, parts: dict[str, Any], instances: list[str]) -> list[PushLayout]:
    """The layout of a push of each of these."""
    samples = ask(lake, SAMPLES, parts | {"instances": ", ".join(quoted(each, "duckdb") for each in instances)})
    payloads = decompress(samples["payload"].combine_chunks(), samples["codec"].combine_chunks()).data.to_pylist()
    seen = dict(zip(samples["client_instance_id"].to_pylist(), map(layout, payloads), strict=True))
    return [seen.get(each, UNSEEN) for each in instances]


def _more(
    layouts: list[PushLayout], shown: Int64s, client: Int64s, metric: pa.DictionaryArray, points: Doubles, text: Doubles
) -> Doubles:
    """Bytes of a point besides names and attributes, of each group and metric; NaN where its push has no such point."""
    names = metric.dictionary.to_pylist()
    more = np.full((len(layouts), len(names)), np.nan)
    for group, (instance, each) in enumerate(zip(shown.tolist(), layouts, strict=True)):
        own = client == instance
        which = metric.indices.to_numpy()[own]
        count = np.bincount(which, points[own], len(names))
        of_text = np.bincount(which, text[own], len(names)) / np.maximum(count, 1)
        size = np.array([each.points.get(name, np.nan) for name in names], np.float64)
        more[group] = np.where(count > 0, size - of_text, np.nan)
    return more
