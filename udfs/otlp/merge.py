"""Inserts the reference decoder's rows among the kernel's, in payload order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.kernels.arrays import Int64s
from kafka_telemetry_lake.udfs.otlp.attribute_sets import distinct_sets
from kafka_telemetry_lake.udfs.otlp.decoded import Decoded


def merged(fast: Decoded, odd: Decoded, at: Int64s) -> Decoded:
    """`fast` with `odd` in place of the payloads `at` these ascending indices, which have no rows in it."""
    sets = pa.concat_arrays([fast.attribute_sets, odd.attribute_sets])
    distinct, codes = distinct_sets(sets.offsets.to_numpy(), sets.keys, sets.items)
    # The kernel's sets are distinct and come first, so their codes don't change.
    odd_codes = np.append(codes[len(fast.attribute_sets) :], np.int32(-1))
    distribution = odd.points["distribution"].to_numpy()
    payload = odd.points["payload"].to_numpy()
    odd_points = _replaced(
        odd.points,
        payload=at[payload],
        attributes=odd_codes[odd.points["attributes"].to_numpy()],
        distribution=np.where(distribution < 0, -1, distribution + fast.distributions.num_rows),
    )
    odd_payloads = _replaced(odd.payloads, resource=odd_codes[odd.payloads["resource"].to_numpy()])
    before = np.searchsorted(fast.points["payload"].to_numpy(), at)
    return Decoded(
        payloads=_spliced(fast.payloads, odd_payloads, at, 1, np.arange(len(at) + 1)),
        points=_spliced(fast.points, odd_points, before, 0, np.searchsorted(payload, np.arange(len(at) + 1))),
        distributions=pa.concat_tables([fast.distributions, odd.distributions]).combine_chunks(),
        attribute_sets=distinct,
    )


def with_texts(decoded: Decoded, name: str, at: Int64s, texts: list[str]) -> Decoded:
    """`decoded` with an error, or what is too much, of the payloads `at` these indices, which have no rows in it."""
    column = decoded.payloads[name].to_numpy(zero_copy_only=False).astype(object)
    column[at] = texts
    place = decoded.payloads.schema.get_field_index(name)
    payloads = decoded.payloads.set_column(place, name, pa.array(column, pa.string()))
    return Decoded(payloads, decoded.points, decoded.distributions, decoded.attribute_sets)


def _replaced(table: pa.Table, **columns: Int64s) -> pa.Table:
    for name, values in columns.items():
        index = table.schema.get_field_index(name)
        table = table.set_column(index, table.schema.field(index), pa.array(values, pa.int32()))
    return table


def _spliced(fast: pa.Table, odd: pa.Table, before: Int64s, drop: int, bounds: Int64s) -> pa.Table:
    """`fast` with rows ``bounds[i]:bounds[i + 1]`` of `odd` in place of `drop` rows from ``before[i]``."""
    both = pa.concat_tables([fast, odd]).unify_dictionaries()
    fast, odd = both.slice(0, fast.num_rows), both.slice(fast.num_rows)
    pieces, row = [], 0
    for index, first in enumerate(before.tolist()):
        pieces += [fast.slice(row, first - row), odd.slice(bounds[index], bounds[index + 1] - bounds[index])]
        row = first + drop
    return pa.concat_tables([*pieces, fast.slice(row)]).combine_chunks()
