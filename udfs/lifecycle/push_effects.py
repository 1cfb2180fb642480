"""What the pushes of a step say about their clients: silence, return, termination, gaps, duplicates, new software."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.kernels.arrays import Bools, Int64s
from kafka_telemetry_lake.udfs.lifecycle.clients import Clients, is_set, objects_of, texts_of
from kafka_telemetry_lake.udfs.lifecycle.events import Event, Events
from kafka_telemetry_lake.udfs.lifecycle.push_sequences import PushSequences
from kafka_telemetry_lake.udfs.lifecycle.rows import ACTIVE, SILENT, TERMINATED, UNSUBSCRIBED
from kafka_telemetry_lake.udfs.lifecycle.silence import NEVER, silences, thresholds
from kafka_telemetry_lake.udfs.subscriptions.matching import CLIENTS as ATTRIBUTES

# Network, broker and the receiver's queue lie between a client's timer and Kafka's record time.
TOLERANCE_MS = 100
# The first push after GetTelemetrySubscriptions comes after 0.5 to 1.5 intervals.
LONGEST_FIRST_INTERVAL = 1.5
SAME_PACE = 0.75  # of the interval: one timer never sends two pushes closer together

_MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_address",
    "client_port",
)


@dataclass(frozen=True)
class PushEffects:
    """The result of `effects_of`: one row per entry of the sequences, except where noted."""

    events: Events  # one row per event
    resumed: Bools  # L7: the client came back with this push
    terminated: Bools  # L6: a terminating push that counts
    missed: Int64s  # L9: pushes missing before this one; -1 for a late push, which was counted as missing
    missed_ms: Int64s  # the time that these would have covered
    duplicated: Bools  # L11, per client: two instances push under its id since it last resumed


@dataclass(frozen=True)
class _Silences:
    """Whether each entry's client had fallen silent, or wasn't asked to push any more, before that entry."""

    silent_at: Int64s  # µs; `NEVER`: it wasn't silent
    unsubscribed: Bools

    @property
    def was_silent(self) -> Bools:
        silent: Bools = self.silent_at != NEVER
        return silent


def effects_of(clients: Clients, sequences: PushSequences, versions: pa.Table) -> PushEffects:
    """Find what a step's pushes say about their clients; changes nothing.

    Args:
        clients: state before the step.
        sequences: the step's pushes.
        versions: rows of table `subscriptions`; may be empty.
    """
    silence = _silences(clients, sequences, versions)
    interval, terminating = sequences.interval, sequences.terminating
    ended = sequences.follows & (sequences.state_before == TERMINATED)
    # L6, KIP-714: a terminating push right after another is ignored until the push interval has passed.
    repeated = ended & terminating & (sequences.gap < 1000 * interval[sequences.previous])
    terminated = sequences.in_order & terminating & ~repeated
    resumed = silence.was_silent | silence.unsubscribed | (ended & ~terminating)  # L7
    missed, missed_ms = _missed(sequences, silence.unsubscribed)
    duplicate, duplicated = _duplicates(clients, sequences, resumed)
    events = Events.all_of(
        [
            _events(Event.FIRST_SEEN, sequences, sequences.is_first),
            _silent_events(sequences, silence),
            _events(
                Event.RESUMED,
                sequences,
                resumed,
                state_before=np.select([silence.was_silent, silence.unsubscribed], [SILENT, UNSUBSCRIBED], TERMINATED),
                gap_us=sequences.gap,
                silent_at=silence.silent_at,
            ),
            _events(Event.TERMINATED, sequences, terminated),
            _events(
                Event.DUPLICATE_INSTANCE,
                sequences,
                duplicate,
                client_port=sequences.port,
                other_port=sequences.port[sequences.previous],
            ),
            _software_changes(clients, sequences),
        ]
    )
    return PushEffects(events, resumed, terminated, missed, missed_ms, duplicated)


def attributes_of(clients: Clients, slots: Int64s) -> pa.Table:
    """What subscriptions are matched against: columns of ``subscriptions.matching.CLIENTS``."""
    port = clients["client_port"][slots]
    texts = [pa.array(clients.objects[name][slots], pa.string()) for name in _MATCHED[:-1]]
    return pa.table([*texts, pa.array(port, mask=port < 0).cast(pa.string())], schema=ATTRIBUTES)


def _events(kind: Event, sequences: PushSequences, which: Bools, **numbers: Int64s) -> Events:
    """An event at each chosen push; `numbers` are per entry."""
    return Events.of(
        kind,
        sequences.layout.slot[which],
        sequences.landed[which],
        sequences.landed[which],
        sequences.partition[which],
        sequences.offset[which],
        **{name: column[which] for name, column in numbers.items()},
    )


def _silent_events(sequences: PushSequences, silence: _Silences) -> Events:
    """Silences that show only now that the client has come back; place and time are those of its push before."""
    which = silence.was_silent & (sequences.state_before != SILENT)
    before = sequences.previous[which]
    return Events.of(
        Event.WENT_SILENT,
        sequences.layout.slot[which],
        silence.silent_at[which],
        sequences.latest_landing[before],
        sequences.partition[before],
        sequences.offset[before],
        push_interval_ms=sequences.interval[before],
    )


def _silences(clients: Clients, sequences: PushSequences, versions: pa.Table) -> _Silences:
    layout, previous = sequences.layout, sequences.previous
    silent_at = np.full(len(previous), NEVER)
    unsubscribed = np.zeros(len(previous), np.bool_)
    already_silent = sequences.follows & (sequences.state_before == SILENT)  # then `previous` is the head
    silent_at[already_silent] = clients["silent_at"][layout.slot[already_silent]]
    due = sequences.latest_landing[previous] + thresholds(sequences.interval[previous])
    awaited = (sequences.state_before == ACTIVE) | (sequences.state_before == UNSUBSCRIBED)
    overdue = np.flatnonzero(sequences.follows & awaited & (sequences.clock > due))
    if len(overdue):
        before = previous[overdue]
        falls_silent_at, not_asked_at = silences(
            _attributes(clients, sequences, before),
            clients.objects["cluster_id"][layout.slot[overdue]].tolist(),
            sequences.latest_landing[before],
            sequences.interval[before],
            versions,
        )
        is_silent = sequences.clock[overdue] > falls_silent_at
        silent_at[overdue[is_silent]] = falls_silent_at[is_silent]
        unsubscribed[overdue] = ~is_silent & (sequences.clock[overdue] > not_asked_at)
    return _Silences(silent_at, unsubscribed)


def _attributes(clients: Clients, sequences: PushSequences, entries: Int64s) -> pa.Table:
    """`attributes_of` as of these entries: what the push itself says, or the state at a head."""
    layout = sequences.layout
    table = attributes_of(clients, layout.slot[entries])
    is_push = pa.array(~layout.is_head[entries])
    pushes = sequences.pushes.take(pa.array(np.maximum(layout.push_row[entries], 0)))
    for place, name in enumerate(_MATCHED):
        of_push = pushes[name].cast(pa.string())
        table = table.set_column(place, ATTRIBUTES.field(place), pc.if_else(is_push, of_push, table.column(place)))
    return table


def _missed(sequences: PushSequences, unsubscribed: Bools) -> tuple[Int64s, Int64s]:
    """L9: how many pushes each gap should have contained, at least, and the time that these cover, ms."""
    previous, interval = sequences.previous, sequences.interval
    interval_before = interval[previous]
    longest = np.maximum(np.maximum(interval, interval_before), 1)
    asked_anew = (sequences.connection != sequences.connection[previous]) | (interval != interval_before)
    asked_anew |= ~_known_ports(sequences)  # perhaps over another connection
    patience = np.where(asked_anew, LONGEST_FIRST_INTERVAL, 1.0)
    missing = np.floor((sequences.gap / 1000 + TOLERANCE_MS) / longest - patience).clip(0).astype(np.int64)
    counts = sequences.follows & (interval_before > 0) & (sequences.state_before != TERMINATED) & ~unsubscribed
    missed = np.where(counts, missing, np.where(sequences.is_late, -1, 0))
    return missed, missed * np.where(interval > 0, longest, 0)


def _known_ports(sequences: PushSequences) -> Bools:
    """Whether the ports of each entry and of the one before are known: without them two connections look alike."""
    known: Bools = (sequences.port >= 0) & (sequences.port[sequences.previous] >= 0)
    return known


def _duplicates(clients: Clients, sequences: PushSequences, resumed: Bools) -> tuple[Bools, Bools]:
    """L11: two senders alternate, A, B, A, where one client would stay with B.

    Returns:
        The first such push of each episode (the time between two resumptions), per entry; and whether each client's
        last episode has one, per client.
    """
    layout, previous, client = sequences.layout, sequences.previous, sequences.layout.client
    connection_before = np.where(
        layout.is_head, clients["connection_before"][layout.slot], sequences.connection[previous]
    )
    gap_before = np.where(layout.is_head, 1000 * clients["gap_ms"][layout.slot], sequences.gap)[previous]
    alternates = sequences.follows & (sequences.connection == connection_before[previous])
    alternates &= sequences.connection != sequences.connection[previous]
    longer = np.maximum(sequences.gap, gap_before)
    other_origin = (sequences.origin != sequences.origin[previous]) & (longer < thresholds(sequences.interval))
    # One client pushes to a broker over one connection, by one timer.
    same_broker = (sequences.broker == sequences.broker[previous]) & (sequences.broker >= 0)  # -1: unknown, no broker
    other_timer = same_broker & _known_ports(sequences) & (longer < SAME_PACE * 1000 * sequences.interval)
    shows_two = alternates & (gap_before >= 0) & (other_origin | other_timer)

    episode = np.cumsum(resumed)
    first_episode = episode[np.flatnonzero(layout.is_head)]
    already_reported = (clients["duplicated"][layout.slot] > 0) & (episode == first_episode[client])
    entries = np.flatnonzero(shows_two & ~already_reported)
    groups = np.stack([client[entries], episode[entries]])
    duplicate = np.zeros(len(previous), np.bool_)
    duplicate[entries[np.unique(groups, axis=1, return_index=True)[1]]] = True
    last_episode = episode[layout.ends]
    duplicated = (clients["duplicated"][layout.slots] > 0) & (last_episode == first_episode)
    duplicated[client[duplicate & (episode == last_episode[client])]] = True
    return duplicate, duplicated


def _software_changes(clients: Clients, sequences: PushSequences) -> Events:
    """L10: a push names other software than the client's last push that named one."""
    layout = sequences.layout
    names, versions = (clients.objects[f"client_software_{part}"][layout.slots] for part in ("name", "version"))
    of_clients = [None if a is None or b is None else f"{a} {b}" for a, b in zip(names, versions, strict=True)]
    of_pushes = pc.binary_join_element_wise(
        sequences.pushes["client_software_name"], sequences.pushes["client_software_version"], " "
    )
    software = np.concatenate([objects_of(of_clients), texts_of(of_pushes)])[layout.order]
    names_software = is_set(software) & sequences.in_order
    before = software[np.append(0, layout.latest(names_software)[:-1])]
    changed = sequences.follows & names_software & is_set(before) & (software != before)
    return _events(Event.SOFTWARE_CHANGED, sequences, changed).with_texts(before[changed], software[changed])
