"""Standard output and standard error that take any text, wherever they lead, and log lines, as text or JSON.

Both forms of a log line escape control characters, since clients choose their names.
"""

from __future__ import annotations

import codecs
import io
import json
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kafka_telemetry_lake.pipelines.query.printable import printable, printable_json
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


def fail(error: TelemetryLakeError) -> int:
    """Print an error's message on stderr and return its exit code."""
    print(f"telemetry-lake: {printable(str(error), keep=chr(10))}", file=sys.stderr)
    return error.exit_code


class TextLines(logging.Formatter):
    """One line per message. A traceback follows on its own lines, escaped too."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the library's name
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # the same
        return printable(super().formatException(ei), keep="\n")


def log_to_stdout(level: str, form: str = "text") -> None:
    """Log to stdout as `text` or `json`; silences py4j below ERROR."""
    logging.basicConfig(level=level, stream=sys.stdout)
    lines = JsonLines() if form == "json" else TextLines("%(asctime)s %(message)s", "%H:%M:%S")
    for handler in logging.getLogger().handlers:
        handler.setFormatter(lines)
    logging.getLogger("py4j").setLevel(logging.ERROR)


class JsonLines(logging.Formatter):
    """``{"time": ISO-8601 UTC, "level": ..., "logger": ..., "message": ...}``, one object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return printable_json(line)
