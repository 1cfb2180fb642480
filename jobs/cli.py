"""The ``telemetry-lake`` command: finds the job and gives it the rest of the line."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version

COMMANDS = {
    "demo": ("jobs.demo", "see it work: captured pushes of real clients into a lake, and a report"),
    "ingest": ("jobs.ingest", "landed pushes -> Delta tables, from a Kafka topic or from files"),
    "maintain": ("jobs.maintain", "retention, compaction and VACUUM, beside the running job"),
    "query": ("jobs.query", "SQL over a lake, without Spark"),
    "replay": ("jobs.replay", "stored pushes decoded and converted anew after a fix, and swapped in"),
    "sync": ("jobs.sync", "configured subscriptions -> their history in the lake, from the cluster or a file"),
    "quality": ("jobs.quality", "rules that every lake must keep, checked over the rows that are new"),
    "dashboard": ("jobs.dashboard", "pages in the browser over a lake"),
    "views": ("jobs.views", "the views of sql/: create them in Spark, or list the questions that they answer"),
}


# Modules that a wheel without its extras lacks, and the extra that brings them.
EXTRAS = {
    "altair": "dashboard",
    "streamlit": "dashboard",
    "great_expectations": "quality",
    "pandas": "spark",
    "pyspark": "spark",
}


def usage() -> str:
    """The help of the command itself."""
    commands = "\n".join(f"  {name:<9} {meaning}" for name, (_, meaning) in COMMANDS.items())
    return f"""usage: telemetry-lake COMMAND [--help] [flags]

What Kafka clients tell about themselves (KIP-714), as exact, queryable Delta tables.

commands:
{commands}

New here? Try these three:
  telemetry-lake demo --lake demo-lake
  telemetry-lake query --lake demo-lake "SELECT client_id, count(*) FROM metric_points GROUP BY 1"
  telemetry-lake ingest --source files:DIR --lake my-lake --once

Settings come from flags, then TELEMETRY_LAKE_* variables, then --conf FILE (YAML; see conf/)."""


def main(argv: list[str] | None = None) -> int:
    """Dispatch to a job; `argv` without the program's name. Gives the exit code: 2 for an unknown command."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if words[0] in ("-V", "--version"):
        print(f"telemetry-lake {version('kafka-telemetry-lake')}")
        return 0
    if words[0] not in COMMANDS:
        print(f"telemetry-lake: no command {words[0]!r}; there are: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        module = import_module(COMMANDS[words[0]][0])
        return int(module.main(words[1:]))
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        print(
            f"telemetry-lake: {words[0]} needs {error.name}: pip install 'kafka-telemetry-lake[{extra}]'"
            + (", or run it by spark-submit or on Databricks, which bring it" if extra == "spark" else ""),
            file=sys.stderr,
        )
        return 2


def task() -> None:
    """The same as a task of a scheduler that takes an exception, not an exit code, for a failure (Databricks)."""
    if code := main():
        raise SystemExit(code)


if __name__ == "__main__":
    sys.exit(main())
