"""deploy/grafana and a fleet's alert rules, without a Grafana: expressions parse and name what is served.

The schema is that of Grafana 10.1 as its Foundation SDK has it, which is generated from Grafana's own.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from pydantic import SecretStr

from kafka_telemetry_lake.pipelines.export.known_clients import KnownClients
from kafka_telemetry_lake.pipelines.export.measures import COUNTERS, DIMENSIONS, LEVELS, PREFIX, STATES
from kafka_telemetry_lake.pipelines.export.otlp import SIGNALS, Otlp
from kafka_telemetry_lake.pipelines.export.prometheus import Fleet
from kafka_telemetry_lake.pipelines.observe.metrics_server import JobMetrics
from tests.unit.export.made_lake import counting, make_lake

ROOT = Path(__file__).parents[3]
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
ALERTS = ROOT / "deploy" / "prometheus" / "fleet-alerts.yml"
TOOL = ROOT / "tools" / "grafana_dashboards.py"
NAMES = {"fleet", "producers", "consumers", "quotas", "application", "pipeline"}
# Of https://github.com/grafana/grafana/blob/main/packages/grafana-data/src/valueFormats/categories.ts
UNITS = {"short", "Bps", "recps", "reqps", "cps", "s", "bytes", "percentunit", "dateTimeFromNow"}
METRIC = re.compile(rf"\b{PREFIX}_\w+")


def load(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return content


def expressions() -> Iterator[tuple[str, str]]:
    for file in DASHBOARDS:
        for panel in load(file)["panels"]:
            for target in panel["targets"]:
                yield f"{file.stem}: {panel['title']}", target["expr"]


def alert_rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return list(group["rules"])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all metrics that the job and the exporter can serve."""
    lake, url = make_lake(tmp_path_factory.mktemp("served")), SecretStr("http://127.0.0.1:1")
    counts = counting(lake)
    fleet = Fleet(lake, counts, 1)
    for signal in SIGNALS.values():
        fleet.also(Otlp(lake, "x", signal, KnownClients(lake), url, {}, is_cumulative=False, from_start=False).families)
    assert fleet.refresh()
    counts.close()
    names = {sample.name for family in fleet.families for sample in family.samples}
    names |= {f"{PREFIX}_{dimension}_{each.name}_total" for dimension in DIMENSIONS for each in COUNTERS}
    names |= {
        f"{PREFIX}_{dimension}_{each.name}" for dimension in DIMENSIONS if dimension != "topic" for each in LEVELS
    }
    names |= {f"{PREFIX}_{state.name}" for state in STATES}
    return names | set(re.findall(r"^# TYPE (\w+)", generate_latest(JobMetrics().registry).decode(), re.MULTILINE))


def test_the_files_are_those_that_the_tool_writes(tmp_path: Path) -> None:
    assert {file.stem for file in DASHBOARDS} == NAMES
    subprocess.run([sys.executable, TOOL, tmp_path], check=True)
    for written in sorted(tmp_path.rglob("*.*")):
        there = ROOT / "deploy" / "grafana" / written.relative_to(tmp_path)
        assert there.read_text("utf-8") == written.read_text("utf-8"), f"{there.name}: run {TOOL.name}"


def test_what_is_asked_for_is_served(served: set[str]) -> None:
    for where, expression in [*expressions(), *((rule["alert"], rule["expr"]) for rule in alert_rules())]:
        named = set(METRIC.findall(expression))
        assert named or "up{" in expression, where
        assert named <= served, where


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool")
def test_every_expression_parses(tmp_path: Path) -> None:
    rules = []
    for number, (_, expression) in enumerate(expressions()):
        plain = expression.replace("$__rate_interval", "5m").replace("$cluster", ".*").replace("$application", ".*")
        assert "$" not in plain
        rules.append({"record": f"panel:{number}", "expr": plain})
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), "utf-8")
    done = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_dashboard_is_whole(file: Path) -> None:
    content = load(file)
    assert content["uid"] == f"telemetry-lake-{file.stem}"
    variables = {each["name"] for each in content["templating"]["list"]}
    taken = set[tuple[int, int]]()
    for panel in content["panels"]:
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["title"]
        assert panel["description"].endswith(".")
        used = set(re.findall(r"\$(?!__)(\w+)", " ".join(target["expr"] for target in panel["targets"])))
        assert used <= variables, panel["title"]
    assert len({panel["id"] for panel in content["panels"]}) == len(content["panels"])


@pytest.mark.skipif(importlib.util.find_spec("grafana_foundation_sdk") is None, reason="no grafana-foundation-sdk")
@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_grafanas_schema_knows_every_field(file: Path) -> None:
    assert encoded(load(file)) == []


@pytest.mark.skipif(importlib.util.find_spec("grafana_foundation_sdk") is None, reason="no grafana-foundation-sdk")
def test_a_field_that_grafana_does_not_know_would_be_found() -> None:
    content = load(DASHBOARDS[0])
    content["panels"][0]["gridPos"]["widht"] = 1
    content["panels"][1]["options"]["legendd"] = {}
    content["panels"][1]["targets"][0]["exprr"] = ""
    assert len(encoded(content)) == 3


def encoded(content: dict[str, Any]) -> list[str]:
    """The paths of what Grafana's types don't keep."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: PLC0415  # it may not be installed
    from grafana_foundation_sdk.cog.plugins import register_default_plugins  # noqa: PLC0415  # the same
    from grafana_foundation_sdk.models.dashboard import Dashboard  # noqa: PLC0415  # the same

    register_default_plugins()
    kept = json.loads(json.dumps(Dashboard.from_json(json.loads(json.dumps(content))), cls=JSONEncoder))
    return sorted(path for path, _ in set(_leaves(content, "")) - set(_leaves(kept, "")))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Paths and values of all that is in a JSON value; a list or an object itself has none."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield path, None if isinstance(value, (dict, list)) else value
    for name, each in items:
        yield from _leaves(each, f"{path}.{name}")


def test_every_alert_has_a_runbook_and_was_tried() -> None:
    page = (ROOT / "docs" / "export.md").read_text("utf-8")
    tried = (ROOT / "tests" / "data" / "fleet_alerts_test.yml").read_text("utf-8")
    for rule in alert_rules():
        name = rule["alert"]
        assert f"\n### {name}\n" in page
        assert rule["annotations"]["runbook_url"] == f"docs/export.md#{name.lower()}"
        assert tried.count(f"alertname: {name}") >= 2, f"{name} must fire once, and once not"
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]
