"""Client aliases from files, recorded by `telemetry-lake sync` and shown where clients are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.pipelines.applications.aliases import AliasError, read_aliases
from kafka_telemetry_lake.pipelines.applications.aliases_topic import AliasRecord, aliases_of
from tests.support.lake_tables import table

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


def record(offset: int, key: str | None, value: str | None, timestamp_ms: int = 0, partition: int = 0) -> AliasRecord:
    return AliasRecord(key, value, partition, offset, timestamp_ms)


def test_of_a_topic_the_last_record_of_each_key_counts() -> None:
    shop, bank = (json.dumps({"client_id": "orders", "application": name}) for name in ("shop", "bank"))
    canary = f'{{"client_instance_id": "{ID}", "application": "shop-canary"}}'
    parsed = aliases_of([record(0, "orders", bank), record(1, "x", canary), record(2, "orders", shop)])
    assert [(row["client_id"], row["client_instance_id"], row["application"]) for row in parsed.rows] == [
        (None, ID, "shop-canary"), ("orders", None, "shop"),
    ]  # fmt: skip
    assert parsed.problems == []
    assert aliases_of([record(0, "orders", shop), record(1, "orders", None)]).rows == []
    # Two keys for one client: the later record, also of another partition.
    two = [record(0, "a", bank, 20), record(5, "b", shop, 10, partition=1)]
    assert [row["application"] for row in aliases_of(two).rows] == ["bank"]


def test_records_that_are_not_understood_are_reported_and_left_out() -> None:
    records = [
        record(0, None, '{"client_id": "a", "application": "b"}'), record(1, "k", "{"),
        record(2, "l", '{"client_id": "a"}'), record(3, "m", "[]"),
        record(4, "n", '{"client_id": "a", "application": "b"}'),
    ]  # fmt: skip
    parsed = aliases_of(records)
    assert [row["application"] for row in parsed.rows] == ["b"]
    assert [problem.partition(":")[0] for problem in parsed.problems] == [f"partition 0, offset {i}" for i in range(4)]
    assert [problem for problem in parsed.problems if "application: needed" in problem] == [
        "partition 0, offset 2: application: needed"
    ]


@pytest.mark.parametrize(
    "value",
    ["[" * 100_000, '{"a":' * 100_000, "1" * 5000, "NaN", '"\\ud800"', "\x00", '{"client_id": 1, "application": "b"}',
     '{"client_id": ["a"], "application": "b"}', '{"client_id": {"a": 1}, "application": "b"}'],
)  # fmt: skip
def test_no_record_ends_the_reading_of_a_topic(value: str) -> None:
    parsed = aliases_of([record(0, "k", value), record(1, "n", '{"client_id": "a", "application": "b"}')])
    assert [row["application"] for row in parsed.rows] == ["b"]
    assert len(parsed.problems) == 1


def test_a_topic_needs_brokers_and_no_file_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("sync", ["--lake", "l", "--aliases-topic", "t", "--aliases-file", "a.yml"]) == 2
    assert "aliases_topic: requires --bootstrap-servers, and excludes --aliases-file" in capsys.readouterr().err


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
