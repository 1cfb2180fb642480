"""How clients keep to their push interval: early and missed pushes (KIP-714, "Throttling and rate-limiting").

Only what landed is seen: a push that the broker refused, or one without metrics, never lands.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

# Between a client's timer and Kafka's record time lie network, broker and the receiver's queue.
TOLERANCE_MS = 100
# The first push after GetTelemetrySubscriptions comes after 0.5 to 1.5 intervals.
LONGEST_FIRST_INTERVAL = 1.5

Scalar = TypeVar("Scalar", bound=np.generic)

DISCIPLINE = pa.schema(
    [
        pa.field(
            "gap_ms", pa.int64(), metadata={"comment": "since the client's previous push, ms; NULL for the first"}
        ),
        pa.field("expected_ms", pa.int64(), metadata={"comment": "the push interval that the gap is held against, ms"}),
        pa.field("early", pa.bool_(), metadata={"comment": "the gap is shorter; NULL when it can't be said"}),
        pa.field("early_reason", pa.string(), metadata={"comment": "what allows it; NULL when nothing does"}),
        pa.field("missed", pa.int64(), metadata={"comment": "pushes that should have landed in the gap, at least"}),
    ]
)


def discipline(
    client: Int64s,
    landed_at_ms: Int64s,
    push_interval_ms: Int64s,
    terminating: Bools,
    connection: Int64s,
    tolerance_ms: int = TOLERANCE_MS,
) -> pa.Table:
    """Hold each push against its client's push interval.

    An early push is allowed as the first of a connection (whose broker may not know of the earlier ones: one per
    connection), when the interval has changed (the client has been told so and starts anew), and when terminating; a
    terminating push right after a terminating one is not exempt, its flag is ignored until the interval expires.

    Args:
        client: code of each push's client instance; pushes are sorted by client, then by time.
        landed_at_ms: when each landed, ms.
        push_interval_ms: the client's push interval then; 0 when unknown.
        terminating: PushTelemetryRequest.Terminating.
        connection: code of client address and port.

    Returns:
        A row of ``DISCIPLINE`` per push. `early_reason` is terminating, new_connection or interval_changed. `missed`
        is a lower bound: where the client may have started anew, the next push may take 1.5 intervals.
    """
    follows = np.append(False, client[1:] == client[:-1])[: len(client)]
    gap = landed_at_ms - _previous(landed_at_ms)
    previous_interval = _previous(push_interval_ms)
    changed = push_interval_ms != previous_interval
    expected = np.where(changed, np.minimum(push_interval_ms, previous_interval), push_interval_ms)
    known = follows & (push_interval_ms > 0) & (previous_interval > 0)
    early = gap + tolerance_ms < expected
    new_connection = _first_of_connection(client, connection)
    after_terminating = _previous(terminating)
    reason = np.select(
        [terminating & ~after_terminating, new_connection, changed],
        ["terminating", "new_connection", "interval_changed"],
        default="",
    )
    longest = np.maximum(push_interval_ms, previous_interval).clip(1)
    patience = np.where(new_connection | changed, LONGEST_FIRST_INTERVAL, 1.0)
    missed = np.floor((gap + tolerance_ms) / longest - patience).astype(np.int64).clip(0)
    missed = np.where(after_terminating, 0, missed)
    return pa.table(
        [
            pa.array(gap, mask=~follows),
            pa.array(expected, mask=~known),
            pa.array(early, mask=~known),
            pa.array(reason.tolist(), pa.string(), mask=~(known & early & (reason != ""))),
            pa.array(missed, mask=~known),
        ],
        schema=DISCIPLINE,
    )


def _previous(values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    return np.concatenate([values[:1], values[:-1]])


def _first_of_connection(client: Int64s, connection: Int64s) -> Bools:
    """Whether a push is its client's first on its connection."""
    _, first = np.unique(np.stack([client, connection], axis=1), axis=0, return_index=True)
    is_first = np.zeros(len(client), np.bool_)
    is_first[first] = True
    return is_first
