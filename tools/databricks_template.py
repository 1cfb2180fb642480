"""Packs what `databricks bundle init` asks five questions for: the bundle, its wheel, and the files that it names.

    python tools/databricks_template.py WHEEL FOLDER     writes FOLDER/kafka-telemetry-lake-databricks-VERSION.zip

The bundle is the repository's `databricks.yml`, with the answers in place of its targets and with the wheel in place of
the step that builds one. A template is Go's `text/template` (the CLI's documentation, "bundle project templates").
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAME = "kafka-telemetry-lake"
COPIED = ("conf/maintain.yml", "dashboards/client-telemetry.lvdash.json")
NO_QUOTES = r"[^\s\"'\\{}$]+"  # an answer stands in quotes in a YAML file, and `${` begins a variable
TIME = (1980, 1, 1, 0, 0, 0)  # of each file: the same commit gives the same bytes

QUESTIONS = {
    "catalog": ("Unity Catalog catalog of the tables and views", "main", r"[A-Za-z0-9_-]+"),
    "lake": (
        "URI of the lake's folder in an external location. The checkpoints get the same with -checkpoints",
        "s3://lakes/telemetry",
        rf"s3://{NO_QUOTES}[^\s\"'\\{{}}$/]",
    ),
    "bootstrap_servers": ("Brokers of the landing topic", "broker-1:9093,broker-2:9093", rf"{NO_QUOTES}:[0-9]+"),
    "warehouse_id": ("Id of the SQL warehouse of the dashboard", "0123456789abcdef", r"[0-9a-f]{16}"),
    "node_type": ("Node type of the jobs' cluster, one machine", "m6id.xlarge", r"[A-Za-z0-9_.-]+"),
}

TARGET = """\
targets:
  prod:
    mode: production
    default: true
    workspace:
      root_path: /Workspace/Shared/.bundle/${bundle.name}/${bundle.target}
    variables:
      catalog: "{{.catalog}}"
      lake: "{{.lake}}"
      checkpoints: "{{.lake}}-checkpoints"
      bootstrap_servers: "{{.bootstrap_servers}}"
      warehouse_id: "{{.warehouse_id}}"
      node_type: "{{.node_type}}"
"""

HEADER = """\
# Databricks Asset Bundle: the jobs of telemetry-lake and a dashboard over its views, made by `databricks bundle init`.
"""


def schema() -> str:
    """What the CLI asks: `databricks_template_schema.json`."""
    properties = {
        name: {
            "type": "string",
            "description": f"{description}, such as {example}",
            "order": order,
            "pattern": f"^{pattern}$",
            "pattern_match_failure_message": f"{name} looks like {example}",
        }
        for order, (name, (description, example, pattern)) in enumerate(QUESTIONS.items(), 1)
    }
    return json.dumps(
        {
            "welcome_message": "The jobs of telemetry-lake, which turn the metrics of Kafka clients into Delta tables.",
            "properties": properties,
            "success_message": (
                f"Put the options of Kafka's clients into the secret kafka_options of scope {NAME}, then deploy:\n"
                f"  cd {NAME} && databricks bundle deploy"
            ),
        },
        indent=2,
    )


def bundle() -> str:
    """The template of `databricks.yml`."""
    text = (ROOT / "databricks.yml").read_text("utf-8")
    _, found, text = text.partition("\nbundle:\n")
    assert found
    head, found, text = text.partition("\n# Built by the CLI")
    assert found
    _, found, text = text.partition("\nvariables:\n")
    assert found
    jobs, found, _ = text.partition("\ntargets:\n")
    assert found
    whole = f"{HEADER}bundle:\n{head}\nvariables:\n{jobs}\n"
    return whole.replace("{{", '{{"{{"}}') + TARGET


def pack(wheel: Path, folder: Path) -> Path:
    """Write the archive, whose one folder is the template, and return its path."""
    archive = folder / f"{NAME}-databricks-{wheel.name.split('-')[1]}.zip"
    top, inside = f"{NAME}-databricks", f"{NAME}-databricks/template/{NAME}"
    files = {
        f"{top}/databricks_template_schema.json": schema().encode(),
        f"{inside}/databricks.yml.tmpl": bundle().encode(),
        **{f"{inside}/{name}": (ROOT / name).read_bytes() for name in COPIED},
        f"{inside}/dist/{wheel.name}": wheel.read_bytes(),
    }
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(zipfile.ZipInfo(name, TIME), content, zipfile.ZIP_DEFLATED)
    return archive


if __name__ == "__main__":
    print(pack(Path(sys.argv[1]), Path(sys.argv[2])))
