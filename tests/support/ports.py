"""A port for a server that a test starts as a process of its own."""

from __future__ import annotations

from kafka_telemetry_lake.sandbox.cluster.ports import ReservedPorts

_RESERVED: list[ReservedPorts] = []


def free_port() -> int:
    """A loopback port that the kernel gives to nobody else while this process lives; the server sets SO_REUSEADDR.

    One that was only looked for may be gone once the server has started: brokers and clients of other tests take any.
    """
    _RESERVED.append(ReservedPorts(1))
    return int(_RESERVED[-1].numbers[0])
