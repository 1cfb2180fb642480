"""The ``telemetry-lake`` program: prints help and version, and runs the named command."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.metadata import version

from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.support.console import prepare_output
from kafka_telemetry_lake.jobs.support.entry import COMMANDS, fail, run_command
from kafka_telemetry_lake.jobs.support.signals import end_soon_after_a_signal, leave_signals
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError
from kafka_telemetry_lake.udfs.nearest import did_you_mean


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
