"""databricks.yml: every path, entry point, parameter, variable, view and column that it names is there."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.cli import settings_of
from kafka_telemetry_lake.jobs.settings.base import UsageError, parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.pipelines.query.views import needed, parse_view, views
from kafka_telemetry_lake.pipelines.tables.catalog import CATALOG

ROOT = Path(__file__).parents[3]
BUNDLE: dict[str, Any] = yaml.safe_load((ROOT / "databricks.yml").read_text("utf-8"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
DASHBOARD: dict[str, Any] = json.loads((ROOT / "dashboards" / "client-telemetry.lvdash.json").read_text("utf-8"))
REFERENCE = re.compile(r"\$\{([^}]+)\}")
BUILT_IN = {"bundle.name", "bundle.target", "workspace.file_path"}
BY_NAME: dict[str, Any] = BUNDLE["targets"]["tables_by_name"]["resources"]["jobs"]  # beside those of all targets
NAMED_JOBS = {name: job for name, job in BY_NAME.items() if "tasks" in job}
PATH_TASKS = [task for job in BUNDLE["resources"]["jobs"].values() for task in job["tasks"]]
NAMED_TASKS = [task for job in NAMED_JOBS.values() for task in job["tasks"]]


def values(target: str) -> dict[str, str]:
    """The variables' values in a target; what must be given by the deployer stands as `given`."""
    own = BUNDLE["targets"][target].get("variables", {})
    assert own.keys() <= BUNDLE["variables"].keys()
    return {name: own.get(name, each.get("default", "given")) for name, each in BUNDLE["variables"].items()}


def resolved(text: str, target: str) -> str:
    known = {f"var.{name}": value for name, value in values(target).items()}
    known |= {"workspace.file_path": str(ROOT), "bundle.name": BUNDLE["bundle"]["name"], "bundle.target": target}
    return REFERENCE.sub(lambda found: known[found[1]], text)


def texts(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [text for each in node.values() for text in texts(each)]
    return [text for each in node for text in texts(each)] if isinstance(node, list) else [str(node)]


def test_every_reference_is_a_variable_and_every_variable_is_used() -> None:
    named = {name for text in texts(BUNDLE) for name in REFERENCE.findall(text)}
    assert named - BUILT_IN == {f"var.{name}" for name in BUNDLE["variables"]}
    assert all(each["description"] for each in BUNDLE["variables"].values())


def test_prod_has_no_value_that_nobody_chose() -> None:
    assert "variables" not in BUNDLE["targets"]["prod"]
    needed_by_prod = {name for name, value in values("prod").items() if value == "given"}
    assert needed_by_prod == {"catalog", "lake", "checkpoints", "bootstrap_servers", "warehouse_id", "node_type"}
    assert "given" not in values("dev").values()  # a missing variable is found by `databricks bundle validate`


def test_jobs_are_those_that_keep_a_lake() -> None:
    assert set(BUNDLE["resources"]["jobs"]) == {"ingest", "sync", "quality", "maintain"}
    assert "continuous" in BUNDLE["resources"]["jobs"]["ingest"]
    for job in (*BUNDLE["resources"]["jobs"].values(), *NAMED_JOBS.values()):
        clusters = {each["job_cluster_key"] for each in job["job_clusters"]}
        assert {task["job_cluster_key"] for task in job["tasks"]} == clusters
        tasks = {task["task_key"] for task in job["tasks"]}
        assert {before["task_key"] for task in job["tasks"] for before in task.get("depends_on", ())} <= tasks


@pytest.mark.parametrize(
    ("task", "target"),
    [
        *((task, target) for task in PATH_TASKS for target in ("dev", "prod", "tables_by_name")),
        *((task, "tables_by_name") for task in NAMED_TASKS),
    ],
    ids=lambda each: each["task_key"] if isinstance(each, dict) else each,
)
def test_a_task_calls_an_entry_point_with_settings_that_it_takes(
    task: dict[str, Any], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = task["python_wheel_task"]
    assert call["package_name"] == PROJECT["project"]["name"].replace("-", "_")
    assert PROJECT["project"]["scripts"][call["entry_point"]] == "kafka_telemetry_lake.jobs.cli:task"
    command, *flags = (resolved(str(each), target) for each in call["parameters"])
    if command == "quality":
        assert any("great-expectations" in str(each) for each in task["libraries"])
    monkeypatch.setenv("TELEMETRY_LAKE_KAFKA_OPTIONS", '{"kafka.security.protocol": "SASL_SSL"}')
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.lake.place.check_store", lambda _: None)
    parse(settings_of(command), flags, command).check_together()
    with pytest.raises(UsageError):
        parse(settings_of(command), [*flags, "--nope"], command)


def test_a_lake_of_tables_by_name_is_the_only_one_that_is_written() -> None:
    for name, job in BUNDLE["resources"]["jobs"].items():
        (way,) = {"continuous", "schedule"} & job.keys()
        assert BY_NAME[name] == {way: {"pause_status": "PAUSED"}}
    flags = [resolved(str(each), "tables_by_name") for each in NAMED_TASKS[0]["python_wheel_task"]["parameters"]]
    settings = parse(IngestSettings, flags[1:], "ingest")
    assert str(settings.names) == "dev.client_telemetry"
    assert settings.checkpoints == "/Volumes/dev/client_telemetry/telemetry_lake/checkpoints"
    assert [task["task_key"] for task in NAMED_TASKS] == ["ingest_by_name", "maintain_by_name", "views_by_name"]
    assert all("--lake" not in str(task) for task in NAMED_TASKS)


def test_secrets_come_by_scope() -> None:
    secrets = {text for text in texts(BUNDLE) if "{{secrets/" in text}
    assert secrets == {"{{secrets/${var.secret_scope}/kafka_options}}"}


def test_a_task_that_fails_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["telemetry-lake-task", "nonsense"])
    with pytest.raises(SystemExit, match="2"):
        cli.task()
    monkeypatch.setattr("sys.argv", ["telemetry-lake-task", "--version"])
    cli.task()


def test_the_dashboard_asks_for_views_and_columns_that_are_there() -> None:
    described = BUNDLE["resources"]["dashboards"]["client_telemetry"]
    assert (ROOT / described["file_path"]).is_file()
    columns: dict[str, list[str]] = {}
    for dataset in DASHBOARD["datasets"]:
        view = parse_view(dataset["name"], "".join(dataset["queryLines"]))
        assert view.reads <= views().keys() | CATALOG.keys()
        with duckdb.connect() as connection:
            below, tables = needed(view.reads)
            for name in tables:
                connection.register(name, CATALOG[name].empty_table())
            for each in below:
                connection.execute(f'CREATE TEMP VIEW "{each.name}" AS {each.duckdb}')
            columns[dataset["name"]] = connection.sql(view.duckdb).columns
    used = set()
    for page in DASHBOARD["pages"]:
        for cell in page["layout"]:
            (query,) = (each["query"] for each in cell["widget"]["queries"])
            used.add(query["datasetName"])
            for field in query["fields"]:
                (column,) = re.findall(r"`(\w+)`", field["expression"])
                assert column in columns[query["datasetName"]], cell["widget"]["name"]
            asked = {field["name"] for field in query["fields"]}
            shown = re.findall(r'"fieldName": "([^"]+)"', json.dumps(cell["widget"]["spec"]))
            assert set(shown) == asked, cell["widget"]["name"]
    assert used == columns.keys()


def test_no_two_widgets_lie_on_one_another() -> None:
    for page in DASHBOARD["pages"]:
        taken = [
            (x, y)
            for at in (cell["position"] for cell in page["layout"])
            for x in range(at["x"], at["x"] + at["width"])
            for y in range(at["y"], at["y"] + at["height"])
        ]
        assert len(taken) == len(set(taken))
        assert max(x for x, _ in taken) < 6  # columns of a page
    names = [cell["widget"]["name"] for page in DASHBOARD["pages"] for cell in page["layout"]]
    assert len(names) == len(set(names))
