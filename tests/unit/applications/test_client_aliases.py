"""Client aliases from files, recorded by `telemetry-lake sync` and shown where clients are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.pipelines.applications.aliases import AliasError, read_aliases
from tests.support.lake_tables import table
from tests.support.sql_views import answer

ID = "jHecHqLPQj2rnaP7QRzrmg"
YAML = f"""
aliases:
  - {{client_id: orders, application: shop, owner: team-a}}
  - {{client_instance_id: {ID}, application: shop-canary}}
"""
CSV = f"client_instance_id,client_id,application,owner\n,orders,shop,team-a\n{ID},,shop-canary,\n"
ALIASES = [
    {"client_instance_id": None, "client_id": "orders", "application": "shop", "owner": "team-a",
     "environment": None},
    {"client_instance_id": ID, "client_id": None, "application": "shop-canary", "owner": None, "environment": None},
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [("aliases.yml", YAML), ("aliases.csv", CSV)])
def test_files_are_read(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    read = read_aliases(tmp_path / name)
    assert (read.aliases, read.rules) == (ALIASES, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("aliases: [{client_id: a}]", "aliases.0.application: needed"),
        ("aliases: [{application: a}]", "aliases.0: allowed: one of client_instance_id and client_id"),
        (
            "aliases: [{client_id: a, application: b, team: c}]",
            "aliases.0.team: no such field, allowed: client_instance_id",
        ),
        ("aliases: [{client_id: a, application: b}, {client_id: a, application: c}]", "'a': given twice"),
        ("aliases: [{client_instance_id: short, application: b}]", "aliases.0.client_instance_id: "),
        ("aliases: [", "not YAML"),
    ],
)
def test_what_is_wrong_with_a_file_is_reported(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "aliases.yml").write_text(text)
    with pytest.raises(AliasError, match=f"aliases.yml: {message.replace('.', '[.]')}"):
        read_aliases(tmp_path / "aliases.yml")


def test_sync_keeps_their_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, lake = tmp_path / "aliases.yml", tmp_path / "lake"
    file.write_text(YAML)
    flags = ["--lake", str(lake), "--aliases-file", str(file)]
    assert run_command("sync", flags) == 0
    file.write_text(YAML.replace("shop-canary", "canary"))
    assert run_command("sync", flags) == 0
    rows = table(lake, "client_aliases").to_pylist()
    in_force = {row["application"] for row in rows if row["valid_to"] is None}
    assert (len(rows), in_force) == (3, {"shop", "canary"})
    file.write_text("aliases: [{}]")
    assert run_command("sync", flags) == 2
    assert "application: needed" in capsys.readouterr().err


def test_the_instance_counts_before_the_client_id_and_the_cluster_before_all() -> None:
    def client(instance: str, client_id: str, cluster: str = "c") -> dict[str, Any]:
        return {"cluster_id": cluster, "client_instance_id": instance, "client_id": client_id, "step": 1}

    aliases = [
        {"client_id": "orders", "application": "shop", "owner": "a"},
        {"client_id": "orders", "application": "shop of c", "owner": "b", "cluster_id": "c"},
        {"client_instance_id": ID, "application": "canary", "owner": "c"},
    ]
    clients = [client(ID, "orders"), client("two", "orders"), client("three", "orders", "d"), client("four", "other")]
    rows = answer("clients", {"client_changes": clients, "client_aliases": aliases})
    assert {row["client_instance_id"]: (row["application"], row["owner"]) for row in rows} == {
        ID: ("canary", "c"), "two": ("shop of c", "b"), "three": ("shop", "a"), "four": (None, None),
    }  # fmt: skip
