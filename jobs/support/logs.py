"""Log lines on stdout, as text or JSON. Both escape control characters, since clients choose their names."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

from kafka_telemetry_lake.pipelines.query.printable import printable, printable_json


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
