"""Client metrics subscriptions: their configuration, the clients that they match, the metrics that they ask for.

All follows the broker (KIP-714, "Client metrics configuration"; ``ClientMetricsConfigs``,
``ClientMetricsInstanceMetadata`` and ``ClientMetricsManager`` of Apache Kafka).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.identity import mix, text_hash, text_hashes
from kafka_telemetry_lake.udfs.kernels.arrays import Int64s
from kafka_telemetry_lake.udfs.rows import PUSHES_IN
from kafka_telemetry_lake.udfs.subscriptions.patterns import (
    InvalidPatternError,
    PatternError,
    UnsupportedPatternError,
    checked,
    matches,
)

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
MATCH_KEYS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
# Attributes that each client has, though a receiver need not tell them. A client id or a name may not be there at all.
ALWAYS_THERE = ("client_source_address", "client_source_port")
ALL_METRICS = "*"
DEFAULT_INTERVAL_MS = 300_000
LOWEST_INTERVAL_MS, HIGHEST_INTERVAL_MS = 100, 3_600_000
# What Java's String.trim strips, and the comma of Kafka's lists.
JAVA_SPACE = "".join(map(chr, range(0x21)))
COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")

CLIENTS = pa.schema([(key, pa.string()) for key in MATCH_KEYS])
"""The attributes that a broker matches; any may be NULL. Address (as `getHostAddress` gives it) and port are text."""


class SubscriptionError(CannotRunError):
    """A subscription that every broker refuses; the message names subscription, key, value and what is allowed."""


@dataclass(frozen=True)
class Subscription:
    """One client-metrics resource.

    `metrics`: prefixes in the configured order; `interval_ms`: 100 to 3,600,000; `match`: key and Java regular
    expression of each entry, sorted by key. `unread`: why its configuration can't be read here, such as a key of a
    newer release; then the clients that it matches are unknown, and so is what of the rest has its default.
    """

    name: str
    metrics: tuple[str, ...] = ()
    interval_ms: int = DEFAULT_INTERVAL_MS
    match: tuple[tuple[str, str], ...] = ()
    unread: str | None = None

    @property
    def problem(self) -> str | None:
        """Why this package can't decide which clients match; None if it can."""
        if self.unread is not None:
            return self.unread
        for key, pattern in self.match:
            try:
                checked(pattern)
            except PatternError as error:
                return f"subscription {self.name!r}, {MATCH}, {key}: {error}"
        return None

    def check(self) -> Subscription:
        """Return this subscription if a broker would accept it, else raise ``SubscriptionError``."""
        where = f"subscription {self.name!r}"
        if not self.name:
            raise SubscriptionError("subscription: name: needed, got ''")
        if not LOWEST_INTERVAL_MS <= self.interval_ms <= HIGHEST_INTERVAL_MS:
            allowed = f"{LOWEST_INTERVAL_MS} to {HIGHEST_INTERVAL_MS}"
            raise SubscriptionError(f"{where}: {INTERVAL_MS}: got {self.interval_ms}, allowed: {allowed}")
        for key, pattern in self.match:
            if key not in MATCH_KEYS:
                raise SubscriptionError(f"{where}: {MATCH}: got key {key!r}, allowed: {', '.join(MATCH_KEYS)}")
            try:
                checked(pattern)
            except InvalidPatternError as error:
                raise SubscriptionError(f"{where}: {MATCH}: {key}: {error}") from None
            except UnsupportedPatternError:
                continue  # brokers accept it; `problem` says what isn't supported here
        return self


def from_config(name: str, config: Mapping[str, str]) -> Subscription:
    """Read a client-metrics resource as brokers do (M5); missing keys have their defaults.

    Args:
        config: values of ``metrics``, ``interval.ms`` and ``match``, as text.

    Raises:
        SubscriptionError: a key or value that brokers refuse.
    """
    where = f"subscription {name!r}"
    for key in config:
        if key not in (METRICS, INTERVAL_MS, MATCH):
            raise SubscriptionError(f"{where}: got key {key!r}, allowed: {METRICS}, {INTERVAL_MS}, {MATCH}")
    interval = config.get(INTERVAL_MS, str(DEFAULT_INTERVAL_MS)).strip(JAVA_SPACE)
    if re.fullmatch(r"[+-]?[0-9]{1,10}", interval) is None:
        raise SubscriptionError(f"{where}: {INTERVAL_MS}: got {interval!r}, allowed: a whole number of milliseconds")
    match: dict[str, str] = {}
    for entry in _items(config.get(MATCH, "")):
        parts = entry.split("=")
        while parts and not parts[-1]:  # Java's split drops what is empty at the end
            parts.pop()
        if len(parts) != 2 or not parts[0].strip(JAVA_SPACE):
            raise SubscriptionError(f"{where}: {MATCH}: got {entry!r}, allowed: key=pattern with one '='")
        match[parts[0].strip(JAVA_SPACE)] = parts[1].strip(JAVA_SPACE)
    metrics = tuple(_items(config.get(METRICS, "")))
    return Subscription(name, metrics, int(interval), tuple(sorted(match.items()))).check()


def as_configured(name: str, config: Mapping[str, str]) -> Subscription:
    """Read a resource that a broker has accepted: as `from_config`, or as much as can be read of a newer release's."""
    try:
        return from_config(name, config)
    except SubscriptionError as error:
        unread = Subscription(name, unread=str(error))
    for key in (METRICS, INTERVAL_MS):
        with suppress(SubscriptionError):
            part = from_config(name, {key: config[key]} if key in config else {})
            own = {"metrics": part.metrics} if key == METRICS else {"interval_ms": part.interval_ms}
            unread = replace(unread, **own)
    return unread


def _items(text: str) -> list[str]:
    """Kafka's ``ConfigDef.Type.LIST``."""
    trimmed = text.strip(JAVA_SPACE)
    return COMMA.split(trimmed) if trimmed else []


def matching(clients: pa.Table, subscription: Subscription) -> pa.BooleanArray:
    """Which clients a subscription matches (M1): every entry must match the whole attribute, which must be there.

    Args:
        clients: columns of ``CLIENTS``; each distinct value is evaluated once.

    Returns:
        One boolean per client; NULL where the result depends on a Java pattern that isn't supported here, on an
        attribute that the receiver doesn't tell (M2), or on what can't be read.
    """
    if subscription.unread is not None:
        return pa.nulls(clients.num_rows, pa.bool_())
    matched = pa.array(np.ones(clients.num_rows, np.bool_))
    for key, pattern in subscription.match:
        matched = pc.and_kleene(matched, _entry_matches(key, clients[key].combine_chunks(), pattern))
    return matched


def _entry_matches(key: str, attribute: pa.Array, pattern: str) -> pa.BooleanArray:
    always_there = key in ALWAYS_THERE
    if always_there:
        attribute = pc.if_else(pc.equal(attribute, ""), None, attribute)
    values = attribute.dictionary_encode()
    try:
        by_value = matches(values.dictionary, pattern)
    except PatternError:
        by_value = pa.nulls(len(values.dictionary), pa.bool_())
    matched = pc.take(by_value, values.indices)
    return pc.if_else(pc.is_null(attribute), pa.scalar(None if always_there else False, pa.bool_()), matched)


def asked(metrics: pa.Array, subscription: Subscription) -> pa.BooleanArray:
    """Which metrics, by full telemetry name, a subscription asks for; that doesn't depend on the client.

    M3: without prefixes none, with ``*`` all, else those that start with any prefix; ``""`` is a prefix of every name.
    """
    if ALL_METRICS in subscription.metrics:
        return pa.array(np.ones(len(metrics), np.bool_))
    wanted = pa.array(np.zeros(len(metrics), np.bool_))
    for prefix in subscription.metrics:
        wanted = pc.or_(wanted, pc.starts_with(metrics, prefix))
    return wanted


def push_interval_ms(intervals_ms: Iterable[int]) -> int:
    """A client's push interval, ms (M4): the lowest interval of its matching subscriptions, at most five minutes."""
    return min([DEFAULT_INTERVAL_MS, *intervals_ms])


# Columns of table `pushes` that the id is made of. SubscriptionId decides at which moment the others are matched (M10).
TEXTS = (
    "cluster_id",
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_address",
)
NUMBERS = ("client_port", "subscription_id")
ATTRIBUTES = pa.schema([PUSHES_IN.field(name) for name in (*TEXTS, *NUMBERS)])

MISSING = np.uint64(text_hash("\0missing"))  # NULL is not the empty text


def client_attributes_ids(pushes: pa.Table) -> Int64s:
    """A stable 64-bit id of the attributes of each row (columns `TEXTS`, `NUMBERS`); each text is hashed once."""
    ids = np.zeros(pushes.num_rows, np.uint64)
    for name in TEXTS:
        texts = pushes[name].combine_chunks().dictionary_encode()
        hashes = np.append(text_hashes(texts.dictionary), MISSING)
        ids = mix(ids, hashes[texts.indices.fill_null(len(hashes) - 1).to_numpy()])
    for name in NUMBERS:
        numbers = pushes[name].combine_chunks()
        valid = numbers.is_valid().to_numpy(zero_copy_only=False)
        ids = mix(ids, np.where(valid, numbers.fill_null(0).to_numpy().astype(np.int64).view(np.uint64), MISSING))
    return ids.view(np.int64)


def matchable(attributes: pa.Table) -> pa.Table:
    """Rows of `ATTRIBUTES` as the broker matches them: columns of `CLIENTS`, all text."""
    columns = [attributes[name].cast(pa.string()) for name in (*TEXTS[1:], NUMBERS[0])]
    return pa.table(columns, schema=CLIENTS)
