"""Builds the rows of table quarantine: whole pushes, and points.

Of the rejected points of a push, the first have a row each, and the others are counted in one row per reason.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs import rows
from kafka_telemetry_lake.udfs.conversion.distributions import FLAWS, Flaw
from kafka_telemetry_lake.udfs.conversion.point_rows import LONGEST_QUOTED, Batch, coded, of_pushes, table
from kafka_telemetry_lake.udfs.conversion.points import Reason
from kafka_telemetry_lake.udfs.conversion.principals import THROTTLED
from kafka_telemetry_lake.udfs.conversion.redelivery import Verdict
from kafka_telemetry_lake.udfs.kernels.arrays import Int64s
from kafka_telemetry_lake.udfs.otlp.decoded import DICTIONARY

DETAILS = {
    Reason.NO_TIME: "time_unix_nano is 0",
    Reason.NO_VALUE: "neither as_double nor as_int is set",
    Reason.UNKNOWN_TEMPORALITY: "aggregation_temporality is neither DELTA nor CUMULATIVE",
    Reason.TEXT_TOO_LONG: "its name, scope or attributes are longer than the limit of texts",
    Reason.TOO_MANY_ATTRIBUTES: "it has more attributes than the limit of a point",
    Reason.TOO_MANY_BUCKETS: "it has more buckets, bounds or quantiles than the limit of a point",
}
REASONS = pa.array([reason.name for reason in Reason])
SIZE = len(Reason)


class _Rejected(NamedTuple):
    """The rejected points of a batch: `listed` are rows of the points, the others are counted by push and reason."""

    listed: Int64s
    push: Int64s  # of each count, ascending
    reason: Int64s
    points: Int64s


def quarantined_points(batch: Batch) -> pa.Table:
    """Rows of quarantine for points, but those of too many series."""
    points, rejected = batch.points, _rejected(batch)
    listed, more = rejected.listed, len(rejected.points)
    size = len(listed) + more
    # Names are cut before they are repeated: one may be as long as its push.
    texts = batch.payloads.decoded.points["metric"].combine_chunks().dictionary
    used, metric = np.unique(points.metric[listed], return_inverse=True)
    names = pc.utf8_slice_codeunits(texts.take(pa.array(used)), 0, LONGEST_QUOTED)
    details = [_detail(batch, int(i)) for i in listed]
    details += [f"{count} more points of this push" for count in rejected.points]
    columns = of_pushes(batch.keys, np.concatenate([points.push[listed], rejected.push])) | {
        "scope": coded(np.zeros(size, np.int64), pa.array(["point"])),
        "reason": coded(np.concatenate([points.reason[listed], rejected.reason]), REASONS),
        "detail": pa.array(details, pa.string()),
        "metric": coded(np.append(metric, np.zeros(more, np.int64)), names, np.arange(size) < len(listed)),
    }
    return table(columns, rows.QUARANTINE, size)


def _rejected(batch: Batch) -> _Rejected:
    """The rejected points, but those of too many series, which `quarantined_pushes` counts."""
    points, most = batch.points, batch.limits.max_listed_points
    fresh = batch.verdicts.verdict != Verdict.REREAD
    of_series = np.isin(points.reason, (Reason.TOO_MANY_SERIES, Reason.TOO_MANY_SERIES_OF_PRINCIPAL))
    rejected = (points.reason != Reason.NONE) & ~of_series
    bad = np.flatnonzero(rejected & fresh[points.push])
    push = points.push[bad]
    is_listed = np.arange(len(bad)) - np.searchsorted(push, push) < most  # points come push by push
    more = bad[~is_listed]
    counts = np.bincount(points.push[more] * SIZE + points.reason[more], minlength=len(fresh) * SIZE)
    # Of points without a time, the decoder has passed on only the first.
    counts[np.arange(len(fresh)) * SIZE + Reason.NO_TIME] += np.where(fresh, batch.untimed, 0)
    filled = np.flatnonzero(counts)
    return _Rejected(bad[is_listed], filled // SIZE, filled % SIZE, counts[filled])


def _detail(batch: Batch, i: int) -> str:
    source, reason = batch.payloads.decoded.points, batch.points.reason[i]
    if reason in DETAILS:
        return DETAILS[Reason(reason)]
    if reason == Reason.BAD_BUCKETS:
        return FLAWS[Flaw(batch.flaws[batch.points.distribution[i]])]
    start, time = source["start_ns"][i].as_py(), source["time_ns"][i].as_py()
    if reason == Reason.START_AFTER_TIME:
        return f"start_time_unix_nano {start} is more than 1 s after time_unix_nano {time}"
    landed_at = batch.keys["landed_at"].view(pa.int64())[int(batch.points.push[i])].as_py() or 0
    return f"time_unix_nano {time} is {(time // 1000 - landed_at) / 1e6:.0f} s after the record landed"


def quarantined_pushes(batch: Batch) -> pa.Table:
    """Rows of quarantine for whole pushes, and one for each push with more points, or more series, than a limit."""
    rejected = np.flatnonzero(batch.payloads.reason.is_valid().to_numpy(zero_copy_only=False))
    fresh = batch.verdicts.verdict != Verdict.REREAD
    capped = np.flatnonzero((batch.beyond > 0) & fresh)
    push = [rejected, capped]
    reasons = [Reason.TOO_MANY_POINTS.name] * len(capped)
    details = [f"{n} points beyond the limit of a push" for n in batch.beyond[capped]]
    for reason, whose in ((Reason.TOO_MANY_SERIES, "client"), (Reason.TOO_MANY_SERIES_OF_PRINCIPAL, "principal")):
        beyond = np.bincount(batch.points.push[batch.points.reason == reason], minlength=len(fresh))
        full = np.flatnonzero((beyond > 0) & fresh)
        push.append(full)
        reasons += [reason.name] * len(full)
        details += [f"{n} points of series beyond the limit of a {whose}" for n in beyond[full]]
    index = pa.array(rejected)
    reason_of = batch.payloads.reason.take(index)
    payload = batch.pushes["payload"].take(index).combine_chunks()
    # The payload of a throttled push is stored in table pushes only.
    payload = pc.if_else(pc.equal(reason_of, THROTTLED), None, payload)
    columns = of_pushes(batch.keys, np.concatenate(push)) | {
        "scope": pa.array(["push"] * len(rejected) + ["point"] * len(reasons), pa.string()).dictionary_encode(),
        "reason": pa.concat_arrays([reason_of, pa.array(reasons, pa.string())]).dictionary_encode(),
        "metric": pa.nulls(len(rejected) + len(reasons), DICTIONARY),
        "detail": pa.concat_arrays([batch.payloads.detail.take(index), pa.array(details, pa.string())]),
        "payload": pa.concat_arrays([payload, pa.nulls(len(reasons), pa.binary())]),
    }
    return table(columns, rows.QUARANTINE, len(rejected) + len(reasons))
