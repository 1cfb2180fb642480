"""Price lists: what a file may say, and its history in the lake."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.pipelines.applications.costs import PricesError, read_prices
from tests.support.lake_tables import table

EXAMPLE = Path(__file__).parents[3] / "conf" / "prices.yml"
PRICES = """\
currency: EUR
bytes_in_gb: 0.05
bytes_out_gb: 0.02
storage_gb_month: 0.1
requests_million: 0
cross_zone_gb: 0.01
topics: [{topic: .*, retention_hours: 24, replication_factor: 3}]
"""


def test_the_example_is_read() -> None:
    rows = read_prices(EXAMPLE)
    assert {row["currency"] for row in rows} == {"EUR"}
    assert [(row["item"], row["subject"], row["price"]) for row in rows if row["item"] != "topic"] == [
        ("bytes_in", "", 0.05), ("bytes_out", "", 0.02), ("storage", "", 0.1), ("requests", "", 0),
        ("cross_zone", "eu-1a", 0.01), ("cross_zone", "eu-1b", 0.01),
    ]  # fmt: skip
    kept = ("position", "subject", "retention_hours", "replication_factor", "price")
    assert [tuple(row[name] for name in kept) for row in rows if row["item"] == "topic"] == [
        (0, "audit-.*", 8760, 3, None), (1, ".*", 168, 3, None),
    ]  # fmt: skip


def test_one_number_is_the_price_in_all_zones(tmp_path: Path) -> None:
    (tmp_path / "prices.yml").write_text(PRICES)
    (row,) = (row for row in read_prices(tmp_path / "prices.yml") if row["item"] == "cross_zone")
    assert (row["subject"], row["price"]) == ("*", 0.01)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bytes_out_gb: 0.02\n", "", r"bytes_out_gb: needed \(0 if it costs nothing\)"),
        ("bytes_out_gb", "bytes_aut_gb", "bytes_out_gb: needed"),
        ("currency: EUR", "currency: EUR\nfee: 1", "fee: no such field, allowed: currency, bytes_in_gb"),
        ("0.05", "-1", "bytes_in_gb: Input should be greater than or equal to 0, got -1"),
        ("0.05", "yes", "bytes_in_gb: Input should be a valid number, got True"),
        ("0.05", ".nan", "bytes_in_gb: Input should be "),
        ("24", "0", "topics.0.retention_hours: Input should be greater than 0, got 0"),
        ("factor: 3", "factor: 2.5", "topics.0.replication_factor: "),
        (".*", "'['", "topics.0: topic is no regular expression that every engine reads alike: "),
        ("currency: EUR", "currency: [", "not YAML"),
    ],
)
def test_what_is_wrong_with_a_list_is_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "prices.yml").write_text(PRICES.replace(old, new))
    with pytest.raises(PricesError, match=f"prices.yml: {message}") as caught:
        read_prices(tmp_path / "prices.yml")
    assert "\n" not in str(caught.value)


def test_sync_keeps_the_history_of_prices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, lake = tmp_path / "prices.yml", tmp_path / "lake"
    for text in (PRICES, PRICES.replace("0.05", "0.07")):
        file.write_text(text)
        assert run_command("sync", ["--lake", str(lake), "--prices-file", str(file)]) == 0
    rows = [row for row in table(lake, "prices").to_pylist() if row["item"] == "bytes_in"]
    assert [(row["price"], row["valid_to"] is None) for row in rows] == [(0.05, False), (0.07, True)]
    file.write_text("currency: EUR")
    assert run_command("sync", ["--lake", str(lake), "--prices-file", str(file)]) == 2
    assert "bytes_in_gb: needed" in capsys.readouterr().err
