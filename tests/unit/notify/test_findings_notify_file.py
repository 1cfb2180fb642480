"""The file of sinks: what is refused, with the field's name and without a secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.pipelines.notify.file import AlertmanagerSink, NotifyFileError, WebhookSink, read_notify_file
from tests.unit.notify.changed_findings import make_lake

ROOT = Path(__file__).parents[3]
GOOD = """
sinks:
  hook:
    {type: webhook, url: "https://hooks.example/${HOOK_TOKEN}", headers: {X-Key: "${KEY}-1"},
     match: {owner: team-a, severity: [error, warning]}}
  alerts: {type: alertmanager, url: http://am:9093}
"""


def read(text: str, folder: Path) -> None:
    file = folder / "notify.yml"
    file.write_text(text, encoding="utf-8")
    read_notify_file(file)


def test_a_file_with_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "t0ken")
    monkeypatch.setenv("KEY", "k")
    (tmp_path / "notify.yml").write_text(GOOD)
    file = read_notify_file(tmp_path / "notify.yml")
    hook, alertmanager = file.sinks["hook"], file.sinks["alerts"]
    assert isinstance(hook, WebhookSink)
    assert isinstance(alertmanager, AlertmanagerSink)
    assert hook.url.get_secret_value() == "https://hooks.example/t0ken"
    assert hook.headers["X-Key"].get_secret_value() == "k-1"
    assert (alertmanager.resend_seconds, alertmanager.expire_seconds) == (60, 300)
    assert (hook.match.owner, hook.match.severity, hook.match.finding) == (["team-a"], ["error", "warning"], [])
    assert "t0ken" not in repr(file)


def test_the_example_of_the_project_is_valid_with_and_without_its_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = ROOT / "conf" / "notify.yml"
    assert list(read_notify_file(example).sinks) == ["alertmanager"]
    monkeypatch.setenv("TICKETS_TOKEN", "t")
    monkeypatch.setenv("ORDERS_SLACK_URL", "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#kafka-clients")
    commented = r"(?m)^  # (?=tickets:|orders-chat:|  [a-z_]+:)"
    (tmp_path / "notify.yml").write_text(re.sub(commented, "  ", example.read_text("utf-8")))
    file = read_notify_file(tmp_path / "notify.yml")
    assert list(file.sinks) == ["alertmanager", "tickets", "orders-chat"]
    assert [sink.match.owner for sink in file.sinks.values()] == [[], [], ["orders-team"]]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("type: webhook", "type: telegram", r"sinks\.hook\.type: allowed: alertmanager, webhook, apprise$"),
        ("type: webhook, ", "", r"sinks\.hook\.type: allowed: alertmanager, webhook, apprise$"),
        ("${HOOK_TOKEN}", "${NO_SUCH}", r"sinks\.hook\.url: environment variable NO_SUCH isn't set$"),
        ("https://hooks", "ftp://hush", r"sinks\.hook\.url: allowed: a URL that begins with http:// or https://"),
        ("https://hooks.example", "http://hush:port", r"sinks\.hook\.url: allowed: a URL"),
        ("https://hooks.example", "http://[hush", r"sinks\.hook\.url: allowed: a URL"),
        ("${KEY}-1", "hush\\r\\nX: y", r"sinks\.hook\.headers: X-Key: allowed: printable ASCII"),
        ("X-Key:", "X Key:", r"sinks\.hook\.headers\.X Key"),
        ("type: webhook", "type: webhook, tokn: hush", r"sinks\.hook\.tokn: no such field$"),
        ('"https://hooks.example/${HOOK_TOKEN}"', "[hush]", r"sinks\.hook\.url: Input should be a valid string$"),
        ("type: webhook, url: ", "type: apprise, url: hush, u: ", r"sinks\.hook\.url: apprise doesn't know such a URL"),
        (
            "url: http://am:9093",
            "url: http://am, resend_seconds: 200",
            r"sinks\.alerts: expire_seconds must be at least",
        ),
        ("alerts: {", "Alerts: {", r"sinks\.Alerts.*should match pattern"),
        ("owner: team-a", "ownr: team-a", r"sinks\.hook\.match\.ownr: no such field$"),
        ("owner: team-a", "owner: [1]", r"sinks\.hook\.match\.owner\.0: Input should be a valid string$"),
        ("owner: team-a", "owner: []", r"sinks\.hook\.match\.owner: List should have at least 1 item"),
        ("sinks:", "sink:", r"sinks: needed"),
        ("sinks:", "routes: []\nsinks:", r"routes: no such field$"),
        ("alerts: {type: alertmanager, url: http://am:9093}", "alerts: 1", r"sinks\.alerts"),
        (
            "http://am:9093",
            "http://am:9093/a/api/v2/alerts/",
            r"sinks\.alerts\.url: leave /api/v2/alerts/ out: the path",
        ),
        ("sinks:\n", "sinks: [\n", r"not YAML: line \d+, column \d+$"),
    ],
)
def test_what_is_wrong_is_named_without_a_secret(
    old: str, new: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "t0ken-hush")
    monkeypatch.setenv("KEY", "key-hush")
    assert old in GOOD
    with pytest.raises(NotifyFileError, match=said) as error:
        read(GOOD.replace(old, new, 1), tmp_path)
    assert "hush" not in str(error.value)
    assert str(error.value).startswith(str(tmp_path))


@pytest.mark.parametrize("text", ["", "[]", "sinks", "sinks: {}", "\x00", "a: &a [*a]", "- " * 5000 + "x"])
def test_other_texts_are_refused_in_one_way(text: str, tmp_path: Path) -> None:
    with pytest.raises(NotifyFileError):
        read(text, tmp_path)


def test_the_command_refuses_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = make_lake(tmp_path)
    file = tmp_path / "notify.yml"
    file.write_text(yaml.safe_dump({"sinks": {}}))
    argv = ["notify", "--lake", lake, "--notify"]
    assert cli.main([*argv, str(tmp_path / "none.yml")]) == 2
    assert cli.main([*argv, str(file)]) == 2
    assert cli.main([*argv, str(file), "--follow", "--dry-run"]) == 2
    assert cli.main(["notify", "--lake", str(tmp_path / "no"), "--notify", str(ROOT / "conf" / "notify.yml")]) == 2
    none, empty, both, no_lake = capsys.readouterr().err.strip().split("telemetry-lake: ")[1:]
    assert none == f"{tmp_path}/none.yml: No such file or directory\n"
    assert f"{file}: sinks: Dictionary should have at least 1 item" in empty
    assert both == "dry_run, follow: set one of both\n"
    assert no_lake == f"no lake at {tmp_path}/no"
