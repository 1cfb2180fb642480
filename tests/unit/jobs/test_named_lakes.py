"""Settings of lakes of tables by name, and what `maintain` says to their tables. Needs no Spark."""

from __future__ import annotations

from datetime import date

import pytest

from kafka_telemetry_lake.jobs.settings.base import UsageError, parse
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.settings.maintain import MaintainSettings
from kafka_telemetry_lake.jobs.settings.views import ViewsSettings
from kafka_telemetry_lake.jobs.support.named_lake import statements
from kafka_telemetry_lake.pipelines.sql_text import quoted
from kafka_telemetry_lake.pipelines.tables.names import Names, is_name

NAMED = ["--catalog", "main", "--schema", "client-telemetry", "--checkpoints", "/Volumes/main/client-telemetry/lake"]


def test_a_catalog_and_schema_are_a_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = parse(IngestSettings, ["--source", "files:x", *NAMED], "test")
    settings.check_together()
    assert settings.names == Names("main", "client-telemetry")
    assert (str(settings.names), settings.names.of("pushes")) == (
        "main.client-telemetry",
        "`main`.`client-telemetry`.`pushes`",
    )
    assert parse(IngestSettings, ["--source", "files:x", "--lake", "x"], "test").names is None
    monkeypatch.setenv("SCHEMA", "of-something-else")  # the variable has the project's prefix
    assert parse(IngestSettings, ["--source", "files:x", "--lake", "x"], "test").schema_ is None
    monkeypatch.setenv("TELEMETRY_LAKE_SCHEMA", "mine")
    assert parse(IngestSettings, ["--source", "files:x", "--lake", "x"], "test").schema_ == "mine"


def test_views_of_no_lake_are_listed_and_of_half_a_name_refused() -> None:
    parse(ViewsSettings, [], "test").check_together()
    parse(ViewsSettings, NAMED[:4], "test").check_together()
    with pytest.raises(UsageError, match="schema: works only with --catalog"):
        parse(ViewsSettings, ["--schema", "a"], "test").check_together()


def test_names() -> None:
    names = ["main", "a-1_B", "a" * 255]
    assert [is_name(text) for text in names] == [True] * 3
    no_names = ["", "a" * 256, "a.b", "a`", "a'b", "a\nb", "main\n", "-a", "a b", "é"]
    assert [text for text in no_names if is_name(text)] == []


def test_a_text_in_sql() -> None:
    assert quoted("it's \\ x\n") == "'it\\'s \\\\ x\\n'"


def test_statements_of_maintain() -> None:
    settings = parse(MaintainSettings, [*NAMED, "--retention-days", "pushes=7", "--vacuum-hours", "48"], "test")
    settings.check_together()
    assert statements("t", "pushes", settings, date(2026, 11, 26)) == [
        "DELETE FROM t WHERE landed_date < DATE'2026-11-20'",
        "OPTIMIZE t WHERE landed_date < DATE'2026-11-26'",
        "VACUUM t RETAIN 48 HOURS",
    ]
    assert statements("t", "quotas", settings, date(2026, 11, 26)) == ["OPTIMIZE t", "VACUUM t RETAIN 48 HOURS"]
