"""Starts every command: reads settings, sets up logging, runs the job, and turns its errors into exit codes."""

from __future__ import annotations

import errno
import sys

from kafka_telemetry_lake.jobs.settings.base import parse
from kafka_telemetry_lake.jobs.support.commands import job_of, settings_of
from kafka_telemetry_lake.jobs.support.console import prepare_output
from kafka_telemetry_lake.jobs.support.logs import log_to_stdout
from kafka_telemetry_lake.pipelines.query.printable import printable
from kafka_telemetry_lake.pipelines.runtime.ambient import explicit_settings_win
from kafka_telemetry_lake.pipelines.runtime.environment import leave_out
from kafka_telemetry_lake.udfs.errors import CannotRunError, TelemetryLakeError

# Packages that only extras install, and which extra; None: that of the command, `spark` unless it has its own.
OPTIONAL = {
    "altair": None, "apprise": "notify", "click": None, "great_expectations": None, "mcp": None, "mcp_types": None,
    "pandas": None, "pyiceberg": None, "pyspark": "spark", "requests": "notify", "streamlit": None,
}  # fmt: skip
NO_TEMPORARY = "No usable temporary directory"  # Python's words
EXTRAS = {"dashboard": "dashboard", "iceberg": "iceberg", "mcp": "mcp", "quality": "quality"}


def run_command(command: str, argv: list[str] | None = None) -> int:
    """Run a command; a known error becomes one line on stderr.

    Args:
        argv: flags, without the names of program and command; None: ``sys.argv[1:]``.

    Returns:
        Exit code: 0 done or stopped cleanly, 1 failed while running, 2 couldn't start with these settings.

    Raises:
        SystemExit: after ``--help``.
    """
    settings = None
    prepare_output(stops=command == "query")  # its results may be large
    explicit_settings_win()
    try:
        settings = parse(settings_of(command), sys.argv[1:] if argv is None else argv, f"telemetry-lake {command}")
        settings.check_together()
        level = getattr(settings, "log_level", None)
        if level is not None:
            log_to_stdout(level, getattr(settings, "log_format", "text"))
        leave_out()
        code = job_of(command)(settings)
        sys.stdout.flush()  # while an error can still be told
        return code
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in OPTIONAL:
            raise
        extra = OPTIONAL[package] or EXTRAS.get(command, "spark")
        advice = ", or run it with spark-submit or on Databricks, which provide it" if extra == "spark" else ""
        install = f"pip install 'kafka-telemetry-lake[{extra}]'"
        return fail(CannotRunError(f"{command} needs {error.name}: {install}{advice}"))
    except TelemetryLakeError as error:
        damage = _damage(getattr(settings, "lake", None), error)
        return fail(error if damage is None else CannotRunError(f"{command}: {damage}"))
    except OSError as error:
        if error.errno == errno.ENOENT and NO_TEMPORARY in str(error):
            return fail(
                CannotRunError(f"{command}: no folder for temporary files can be written: set TMPDIR to one that can")
            )
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        why = (
            "it is read-only; name another place"
            if error.errno == errno.EROFS
            else ("this user may not access it; give it the right")
        )
        return fail(CannotRunError(f"{command}: {error.filename or error}: {why}"))


def _damage(lake: object, error: TelemetryLakeError) -> str | None:
    """What is damaged in the lake, if that is why a library failed."""
    if not isinstance(lake, str) or error.__cause__ is None:
        return None
    import pyarrow as pa  # noqa: PLC0415  # only after a failure

    from kafka_telemetry_lake.pipelines.lake.damage import damage_of  # noqa: PLC0415  # only after a failure

    try:
        return damage_of(lake, str(error))
    except (OSError, pa.ArrowException):  # the lake's store doesn't answer either
        return None


def fail(error: TelemetryLakeError) -> int:
    """Print an error's message on stderr and return its exit code."""
    print(f"telemetry-lake: {printable(str(error), keep=chr(10))}", file=sys.stderr)
    return error.exit_code
