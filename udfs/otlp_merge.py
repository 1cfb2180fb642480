"""Putting rows of the reference decoder in their places among the kernel's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from udfs.attribute_sets import distinct_sets
from udfs.decoded import Decoded

Indices = npt.NDArray[np.int64]


def merged(fast: Decoded, odd: Decoded, at: Indices) -> Decoded:
    """`fast` with `odd` in place of the payloads `at` these ascending indices, which have no rows in it."""
    sets = pa.concat_arrays([fast.attribute_sets, odd.attribute_sets])
    distinct, codes = distinct_sets(sets.offsets.to_numpy(), sets.keys, sets.items)
    # The kernel's sets are distinct and come first, so their codes stay.
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


def with_errors(decoded: Decoded, at: Indices, error: str) -> Decoded:
    """`decoded` with an error for the payloads `at` these indices, which have no rows in it."""
    errors = decoded.payloads["error"].to_numpy(zero_copy_only=False).copy()
    errors[at] = error
    payloads = decoded.payloads.set_column(0, "error", pa.array(errors, pa.string()))
    return Decoded(payloads, decoded.points, decoded.distributions, decoded.attribute_sets)


def _replaced(table: pa.Table, **columns: npt.NDArray[np.int64]) -> pa.Table:
    for name, values in columns.items():
        index = table.schema.get_field_index(name)
        table = table.set_column(index, table.schema.field(index), pa.array(values, pa.int32()))
    return table


def _spliced(fast: pa.Table, odd: pa.Table, before: Indices, drop: int, bounds: Indices) -> pa.Table:
    """`fast` with rows ``bounds[i]:bounds[i + 1]`` of `odd` in place of `drop` rows from ``before[i]``."""
    both = pa.concat_tables([fast, odd]).unify_dictionaries()
    fast, odd = both.slice(0, fast.num_rows), both.slice(fast.num_rows)
    pieces, row = [], 0
    for index, first in enumerate(before.tolist()):
        pieces += [fast.slice(row, first - row), odd.slice(bounds[index], bounds[index + 1] - bounds[index])]
        row = first + drop
    return pa.concat_tables([*pieces, fast.slice(row)]).combine_chunks()
