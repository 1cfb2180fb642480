"""Work that Spark ships to its Python workers: a worker that has other sources than the driver refuses it.

Only names of classes and values of fields are shipped; the code is what the worker has installed. Two installations
that differ would write files of another layout, or judge the same push in two ways.
"""

from __future__ import annotations

import pickle
import socket
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kafka_telemetry_lake.udfs.errors import TelemetryLakeError
from kafka_telemetry_lake.udfs.sources import digest

_PACKAGE = "kafka-telemetry-lake"


class OtherReleaseError(TelemetryLakeError):
    """Driver and worker have different sources; the message names both and the worker's machine."""


class WorkerTask:
    """What a worker unpickles only if its sources are those of the process that pickled it.

    Raises:
        OtherReleaseError: on unpickling, they are others.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # Bytes, so that no class of another release is looked for before the releases are compared.
        return receive, (release(), pickle.dumps((type(self), self.__dict__)))


def receive(sender: str, pickled: bytes) -> Any:
    """The task that a driver of release `sender` has pickled."""
    if sender != (own := release()):
        raise OtherReleaseError(
            f"the Python worker on {socket.gethostname()} has {own}, the driver has {sender}: install the same wheel "
            "on every machine"
        )
    kind, fields = pickle.loads(pickled)
    task = kind.__new__(kind)
    task.__dict__.update(fields)
    return task


@cache
def release() -> str:
    """This installation: version, and the first digits of a digest of what tasks run."""
    try:
        number = version(_PACKAGE)
    except PackageNotFoundError:  # sources on the path, not installed
        number = "of unknown version"
    root = Path(__file__).parents[2]
    return f"{_PACKAGE} {number} (sources {digest(root / 'udfs')[:8]}-{digest(root / 'pipelines')[:8]})"
