"""Standard output and standard error that take any text, wherever they lead."""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

ESCAPES = "telemetry_lake_escapes"  # the name of the error handler for characters that an encoding lacks


class OutputError(TelemetryLakeError):
    """The output can't be written, for example because the disk is full."""


def prepare_output(stops: bool = False) -> None:
    r"""Let standard output and standard error take any text, without errors that are nobody's fault.

    Characters that the console's encoding lacks are written as JSON has them, such as ``\u00e9``. What nobody reads any
    more, because ``head`` has seen enough, is dropped: the command goes on and returns its own exit code. Writing to
    these streams raises ``OutputError`` where it fails in another way.

    Args:
        stops: raise ``BrokenPipeError`` if nobody reads standard output any more, for a command that does nothing else.
    """
    codecs.register_error(ESCAPES, _escaped)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # the shell closed it, by `>&-`
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # until the process ends
        elif stream is getattr(sys, f"__{name}__") and isinstance(stream, io.TextIOWrapper):
            setattr(sys, name, _taking_all(stream, stops and name == "stdout"))


class _Output(io.FileIO):
    """A stream of the process, which stays open."""

    def __init__(self, number: int, stops: bool) -> None:
        super().__init__(number, "wb", closefd=False)
        self._stops = stops

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())  # the rest, which is written when the process ends
            os.close(nowhere)
            if not isinstance(error, BrokenPipeError):
                raise OutputError(f"the output can't be written: {error.strerror}") from error
            if self._stops:
                raise
            return len(data)


def _taking_all(stream: io.TextIOWrapper, stops: bool) -> io.TextIOWrapper:
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(stream.fileno(), stops)),
        encoding=stream.encoding,
        errors=ESCAPES,
        newline=None if os.name == "nt" else "\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(json.dumps(char)[1:-1] for char in error.object[error.start : error.end]), error.end
