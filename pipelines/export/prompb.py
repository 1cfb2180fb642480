"""The messages of Prometheus' remote write 1.0, as protobuf (prometheus/prometheus, folder prompb: remote, types).

Only the fields that a sender of samples needs: a receiver reads them as those of the whole messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# https://prometheus.io/docs/specs/prw/remote_write_spec/: this NaN says that a series has ended.
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]

_PACKAGE = "telemetry_lake.prompb"
_TYPES = descriptor_pb2.FieldDescriptorProto
# Message to its fields: number, name, type, repeated.
_MESSAGES: dict[str, tuple[tuple[int, str, int | str, bool], ...]] = {
    "Label": ((1, "name", _TYPES.TYPE_STRING, False), (2, "value", _TYPES.TYPE_STRING, False)),
    "Sample": ((1, "value", _TYPES.TYPE_DOUBLE, False), (2, "timestamp", _TYPES.TYPE_INT64, False)),
    "TimeSeries": ((1, "labels", "Label", True), (2, "samples", "Sample", True)),
    "WriteRequest": ((1, "timeseries", "TimeSeries", True),),
}


class Message(Protocol):
    """What is used of a message."""

    timeseries: Any

    def SerializeToString(self) -> bytes: ...  # noqa: N802  # protobuf's name

    def ParseFromString(self, data: bytes) -> int: ...  # noqa: N802  # the same


def _write_request() -> type[Message]:
    file = descriptor_pb2.FileDescriptorProto(name="telemetry_lake/prompb.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind, is_repeated in fields:
            label = _TYPES.LABEL_REPEATED if is_repeated else _TYPES.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = _TYPES.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                added.type = cast(Any, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    request = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.WriteRequest"))
    return cast(type[Message], request)


WriteRequest = _write_request()


def write_request(samples: Iterable[tuple[Mapping[str, str], float]], time_ms: int) -> bytes:
    """A request, not compressed.

    Args:
        samples: labels, the metric's name among them as `__name__`, and values.
        time_ms: of all samples.
    """
    request = WriteRequest()
    for labels, value in samples:
        series = request.timeseries.add()
        for name in sorted(labels):  # the specification asks for this order
            series.labels.add(name=name, value=labels[name])
        series.samples.add(value=value, timestamp=time_ms)
    return request.SerializeToString()
