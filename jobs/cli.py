"""The ``telemetry-lake`` command: finds the job and gives it the rest of the line."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version

COMMANDS = {
    "demo": ("jobs.demo", "see it work: captured pushes of real clients into a lake, and a report"),
    "ingest": ("jobs.ingest", "landed pushes -> Delta tables, from a Kafka topic or from files"),
    "query": ("jobs.query", "SQL over a lake, without Spark"),
    "sync": ("jobs.sync", "configured subscriptions -> their history in the lake, from the cluster or a file"),
}


def usage() -> str:
    """The help of the command itself."""
    commands = "\n".join(f"  {name:<8} {meaning}" for name, (_, meaning) in COMMANDS.items())
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
    module = import_module(COMMANDS[words[0]][0])
    return int(module.main(words[1:]))


if __name__ == "__main__":
    sys.exit(main())
