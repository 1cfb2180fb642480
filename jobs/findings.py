"""``telemetry-lake findings``: lists the rules of the findings."""

from __future__ import annotations

import json
import sys

from kafka_telemetry_lake.jobs.entry import run_command
from kafka_telemetry_lake.jobs.findings_settings import FindingsSettings
from kafka_telemetry_lake.pipelines.query.finding_rules import rules


def run_job(settings: FindingsSettings) -> int:
    """List the rules."""
    listed = [
        {"id": rule.id, "severity": rule.severities, "title": rule.title, "scope": rule.scope, "libraries": rule.judged}
        for rule in rules().values()
    ]
    if settings.format == "json":
        print(json.dumps(listed, indent=2))
        return 0
    width = max(map(len, rules()))
    for rule in rules().values():
        severities, judged = "/".join(rule.severities), ", ".join(rule.judged)
        print(f"{rule.id:<{width}}  {severities:<13}  {judged:<27}  {rule.title}")
    return 0


if __name__ == "__main__":
    sys.exit(run_command("findings"))
