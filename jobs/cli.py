"""The ``telemetry-lake`` program: prints help and version, and runs the named command.

It reads the command's settings, prepares the output, and turns errors into exit codes. Command `x-y` has its settings
in ``jobs/settings/x_y.py``, class `XYSettings`, which imports quickly, and its code in ``jobs/x_y.py``, function
`run_job(settings)`, which returns the exit code and may have slow imports.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.metadata import version

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError, parse
from kafka_telemetry_lake.jobs.support.console import fail, log_to_stdout, prepare_output
from kafka_telemetry_lake.jobs.support.signals import end_soon_after_a_signal, leave_signals
from kafka_telemetry_lake.pipelines.runtime.ambient import explicit_settings_win
from kafka_telemetry_lake.pipelines.runtime.environment import leave_out
from kafka_telemetry_lake.udfs.errors import CannotRunError, TelemetryLakeError
from kafka_telemetry_lake.udfs.nearest import did_you_mean

COMMANDS = {
    "demo": "run real clients and a broker (or use captured pushes), ingest, and print a report",
    "connect": "make the topics and a subscription on a cluster, with consent, then ingest and show the first rows",
    "doctor": "check brokers, topics, subscriptions, the lake and this machine, and say what to do",
    "ingest": "turn landed pushes from a Kafka topic or files into Delta tables",
    "maintain": "apply retention, compact files and VACUUM; safe while ingest runs",
    "query": "run SQL over a lake, without Spark",
    "replay": "decode and convert stored pushes again after a fix, and replace their rows",
    "reshard": "distribute the state to another number of shards, for other cores",
    "forget": "erase a client or a principal from every table and file; the job must be stopped",
    "sync": "record the history of subscriptions, quotas, consumer groups and client aliases",
    "check-landing": "say what is wrong with the landing records of another receiver",
    "what-if": "say whom a quota would throttle, or what a subscription would bring, from what is recorded",
    "compare": "say which measures of an application changed at a moment, beyond their noise",
    "quality": "check the lake's data quality rules on rows added since the last check",
    "findings": "evaluate findings and print those that are open, say who looks after one, or list the rules",
    "notify": "send changes of findings to Alertmanager, webhooks, chats and mail",
    "export": "serve fleet figures to Prometheus, and send points and events by OTLP",
    "iceberg": "let Iceberg readers read a lake: Iceberg metadata over the same files, once or after each commit",
    "dashboard": "serve dashboard pages over a lake",
    "mcp": "answer agents' questions about a lake, by the Model Context Protocol",
    "views": "create the SQL views in Spark, or list them with the questions they answer",
    "completion": "print a script that lets bash, zsh or fish complete commands, flags and values",
}
_JOBS = "kafka_telemetry_lake.jobs"


def settings_of(command: str) -> type[JobSettings]:
    """The settings class of a command."""
    module = import_module(f"{_JOBS}.settings.{_module(command)}")
    words = "".join(word.capitalize() for word in command.split("-"))
    settings: type[JobSettings] = getattr(module, f"{words}Settings")
    return settings


def job_of(command: str) -> Callable[[JobSettings], int]:
    """The function that runs a command. The import may take seconds, or raise ``ModuleNotFoundError``."""
    run_job: Callable[[JobSettings], int] = import_module(f"{_JOBS}.{_module(command)}").run_job
    return run_job


def _module(command: str) -> str:
    return command.replace("-", "_")


# Packages that only extras install, and which extra; None: that of the command, `spark` unless it has its own.
OPTIONAL = {
    "altair": None, "apprise": "notify", "click": None, "great_expectations": None, "mcp": None, "mcp_types": None,
    "pandas": None, "py4j": "spark", "pyiceberg": None, "pyspark": "spark", "requests": "notify", "streamlit": None,
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
        sys.stdout.flush()  # while an error can still be reported
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


class InterruptedByUserError(TelemetryLakeError):
    """Ctrl-C ended a command that has no other end; what it had not finished is as if it had been killed."""

    exit_code = 130  # as of shells


class _WithoutPandas(MetaPathFinder):
    """Lets pandas look as if it weren't installed.

    Arrow imports it, where it is installed, with its first array. A query needs none of it, and its first answer comes
    0.7 CPU-s earlier. Other commands keep their pandas, and so do programs that call `main`.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=fullname)


def usage() -> str:
    """The text of ``telemetry-lake --help``."""
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}} {meaning}" for name, meaning in COMMANDS.items())
    return f"""usage: telemetry-lake COMMAND [--help] [flags]

Stores the metrics that Kafka clients push (KIP-714) as exact, queryable Delta tables.

commands:
{commands}

New here? Try these three:
  telemetry-lake demo --lake demo-lake
  telemetry-lake query --lake demo-lake "SELECT client_id, count(*) FROM metric_points GROUP BY 1"
  telemetry-lake ingest --source files:DIR --lake my-lake --once

`telemetry-lake help COMMAND` lists the flags of a command.
A setting is taken from its flag, else from its TELEMETRY_LAKE_* variable, else from --conf FILE (YAML; see conf/)."""


def main(argv: list[str] | None = None) -> int:
    """Run a command; `argv` excludes the program's name. Returns the exit code: 2 for an unknown command."""
    words = sys.argv[1:] if argv is None else argv
    prepare_output(stops=words[:1] == ["query"])
    if words[:1] == ["help"] and len(words) > 1:
        words = [words[1], "--help"]
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if words[0] in ("-V", "--version"):
        print(f"telemetry-lake {version('kafka-telemetry-lake')}")
        return 0
    if words[0] not in COMMANDS:
        near = did_you_mean(words[0], COMMANDS) or f"; the commands are: {', '.join(COMMANDS)}"
        return fail(UsageError(f"unknown command {words[0]!r}{near}"))
    if argv is None and words[0] == "query":
        sys.meta_path.insert(0, _WithoutPandas())
    interrupted = InterruptedByUserError(f"{words[0]}: interrupted")
    try:
        end_soon_after_a_signal(str(interrupted), interrupted.exit_code)
        return run_command(words[0], words[1:])
    except KeyboardInterrupt:
        if argv is not None:
            raise
        return fail(interrupted)
    finally:
        if argv is not None:  # the process is that of another program
            leave_signals()


def task() -> None:
    """`main` for schedulers that detect failure by an exception, not by an exit code (Databricks)."""
    if code := main(sys.argv[1:]):
        raise SystemExit(code)


if __name__ == "__main__":
    sys.exit(main())
