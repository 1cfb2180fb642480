"""Payloads that make their processing fail in every way, by a stand-in for the decoder, here and in Spark's workers.

`FAULTS` names the ways. A payload is ``POISON <name>``. `install` puts the stand-in into this process; Spark's workers
get it by a ``sitecustomize`` module on their path (`worker_path`).
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.conversion import payloads
from kafka_telemetry_lake.udfs.otlp.decode import decode as sound_decode


def _raise(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def _loop() -> None:
    while True:
        pass


def _crash() -> None:
    faulthandler.disable()  # pytest's: its trace of a wanted crash looks like an unwanted one
    ctypes.string_at(0)


def _balloon() -> None:
    taken = []
    for _ in range(200):  # 20 GB of address space; to write them would take more time than a trial has
        taken.append(np.empty(100 << 20, np.uint8))


def _end_the_job() -> None:
    """Kill the worker's daemon, the JVM and the driver, as a push does that takes all memory. Trials are bounded."""
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        os._exit(3)
    parents, parent = list[int](), os.getppid()
    for _ in range(3):
        parents.append(parent)
        parent = int(Path(f"/proc/{parent}/stat").read_text("ascii").rpartition(")")[2].split()[1])
    for each in reversed(parents):
        os.kill(each, signal.SIGKILL)


FAULTS: dict[str, Callable[[], None]] = {
    "value_error": _raise(ValueError("a bug")),
    "memory_error": _raise(MemoryError("no more")),
    "arrow_invalid": _raise(pa.ArrowInvalid("Take operation overflowed")),
    "arrow_io": _raise(OSError("Invalid: a text is too long for Parquet")),
    "segv": _crash,
    "exit": lambda: os._exit(3),
    "loop": _loop,
    "balloon": _balloon,
}
IN_SPARK = FAULTS | {"end_the_job": _end_the_job}  # it needs a job to end


def payload(name: str) -> bytes:
    return f"POISON {name}".encode()


def decode(data: pa.Array, *arguments: Any, **options: Any) -> Any:
    """As `udfs.otlp.decode.decode`, but for poison."""
    texts = [text for text in data.to_pylist() if text is not None and text.startswith(b"POISON ")]
    for text in texts:  # the first of a part fails, as in a real decoder
        if (fault := IN_SPARK.get(text.removeprefix(b"POISON ").decode())) is not None:
            fault()
    if {payload("pair a"), payload("pair b")} <= set(texts):
        raise ValueError("only together")
    return sound_decode(data, *arguments, **options)


def install() -> None:
    vars(payloads)["decode"] = decode


def worker_path(folder: Path) -> str:
    """A folder for a worker's PYTHONPATH."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "from tests.support.poison import install\n\ninstall()\n", encoding="utf-8"
    )
    return str(folder)
