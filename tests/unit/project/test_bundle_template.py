"""The template of `databricks bundle init`: five answers give a bundle that is the repository's own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_telemetry_lake.jobs.cli import settings_of
from kafka_telemetry_lake.jobs.settings.base import parse
from tests.support.patience import PATIENCE_S
from tests.unit.project.test_bundle import BUNDLE, PATH_TASKS, REFERENCE, ROOT
from tools.databricks_template import NAME, QUESTIONS, pack

WHEEL = "kafka_telemetry_lake-1.2.3-py3-none-any.whl"
ANSWERS = {
    "catalog": "main",
    "lake": "s3://lakes/telemetry",
    "bootstrap_servers": "a.example:9093,[2001:db8::1]:9093",
    "warehouse_id": "0123456789abcdef",
    "node_type": "i4i.xlarge",
}
# As the CLI does it: an answer that is missing is an error.
GO = """\
package main

import (
	"encoding/json"
	"os"
	"text/template"
)

func main() {
	var answers map[string]any
	if err := json.Unmarshal([]byte(os.Args[2]), &answers); err != nil {
		panic(err)
	}
	text := template.Must(template.New("databricks.yml.tmpl").Option("missingkey=error").ParseFiles(os.Args[1]))
	if err := text.Execute(os.Stdout, answers); err != nil {
		panic(err)
	}
}
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a user names after unpacking."""
    folder = tmp_path_factory.mktemp("template")
    (folder / WHEEL).write_bytes(b"a wheel")
    archive = pack(folder / WHEEL, folder)
    assert archive.name == f"{NAME}-databricks-1.2.3.zip"
    shutil.unpack_archive(archive, folder)
    return folder / f"{NAME}-databricks"


def rendered(template: Path) -> str:
    """What Go's text/template makes of it, for the two kinds of action that it has."""
    text = (template / "template" / NAME / "databricks.yml.tmpl").read_text("utf-8")
    assert set(re.findall(r"\{\{(.*?)\}\}", text)) == {f".{name}" for name in QUESTIONS} | {'"{{"'}
    return re.sub(r'\{\{(?:\.(\w+)|"\{\{")\}\}', lambda found: ANSWERS[found[1]] if found[1] else "{{", text)


def schema(template: Path) -> dict[str, Any]:
    asked: dict[str, Any] = json.loads((template / "databricks_template_schema.json").read_text("utf-8"))
    return asked


def test_five_questions_in_order(template: Path) -> None:
    asked = schema(template)["properties"]
    assert [each["order"] for each in asked.values()] == [1, 2, 3, 4, 5]
    for name, each in asked.items():
        example = each["pattern_match_failure_message"].removeprefix(f"{name} looks like ")
        assert each["description"].endswith(f", such as {example}")
        assert re.fullmatch(each["pattern"], example)
        assert re.fullmatch(each["pattern"], ANSWERS[name])


@pytest.mark.parametrize("end", ['"', "'", "\\", "\n", " ", "${var.lake}", "{{.lake}}", ""])
def test_no_answer_leaves_its_place(template: Path, end: str) -> None:
    for name, each in schema(template)["properties"].items():
        assert not re.fullmatch(each["pattern"], ANSWERS[name] + end if end else "")
    assert not re.fullmatch(schema(template)["properties"]["lake"]["pattern"], "s3://lakes/telemetry/")
    assert not re.fullmatch(schema(template)["properties"]["lake"]["pattern"], "/dbfs/lake")


def test_the_bundle_is_the_repositorys_with_the_answers_and_the_wheel(
    template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = yaml.safe_load(rendered(template))
    (target,) = made.pop("targets").values()
    assert made == {name: each for name, each in BUNDLE.items() if name not in ("artifacts", "targets")}
    assert target["mode"] == "production"
    assert target["variables"] == {**ANSWERS, "checkpoints": f"{ANSWERS['lake']}-checkpoints"}
    given = {name for name, each in BUNDLE["variables"].items() if "default" not in each}
    assert given == target["variables"].keys()
    folder = template / "template" / NAME
    assert [path.name for path in folder.glob("dist/*.whl")] == [WHEEL]
    assert (folder / made["resources"]["dashboards"]["client_telemetry"]["file_path"]).is_file()
    values = {f"var.{name}": each.get("default") for name, each in BUNDLE["variables"].items()}
    values |= {f"var.{name}": value for name, value in target["variables"].items()}
    values["workspace.file_path"] = str(folder)
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.lake.place.check_store", lambda _: None)
    for task in PATH_TASKS:
        texts = (str(each) for each in task["python_wheel_task"]["parameters"])
        command, *flags = (REFERENCE.sub(lambda found: values[found[1]], text) for text in texts)
        parse(settings_of(command), flags, command).check_together()


def test_the_same_wheel_gives_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / WHEEL).write_bytes(b"a wheel")
    first = pack(tmp_path / WHEEL, tmp_path).read_bytes()
    archive = pack(tmp_path / WHEEL, tmp_path)
    assert archive.read_bytes() == first
    with zipfile.ZipFile(archive) as packed:
        for name in ("conf/maintain.yml", "dashboards/client-telemetry.lvdash.json"):
            assert packed.read(f"{NAME}-databricks/template/{NAME}/{name}") == (ROOT / name).read_bytes()


@pytest.mark.slow
def test_go_renders_it_to_the_same(template: Path, tmp_path: Path) -> None:
    if (go := shutil.which("go")) is None:
        pytest.skip("Go is not installed")
    (tmp_path / "main.go").write_text(GO)
    text = template / "template" / NAME / "databricks.yml.tmpl"
    command = [go, "run", str(tmp_path / "main.go"), str(text)]
    done = subprocess.run(
        [*command, json.dumps(ANSWERS)], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == rendered(template)
    done = subprocess.run([*command, "{}"], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert 'map has no entry for key "catalog"' in done.stderr
