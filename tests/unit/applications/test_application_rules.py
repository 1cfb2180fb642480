"""Rules that say which application a client belongs to: of the file, recorded by `sync`, applied by view `clients`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.pipelines.applications.aliases import AliasError, read_aliases
from tests.support.lake_tables import table
from tests.support.sql_views import answer

RULES = """
rules:
  - {principal: 'User:pay-.*', application: payments, owner: team-pay, environment: production}
  - {group_id: 'audit|audit-[0-9]+', application: audit, owner: team-risk}
  - {address_range: 10.1.0.0/16, client_id: 'web-.*', application: web}
  - {address_range: 'fd00::/8', application: edge, owner: team-edge}
"""


def rules(tmp_path: Path, text: str = RULES) -> list[dict[str, Any]]:
    (tmp_path / "applications.yml").write_text(text)
    return read_aliases(tmp_path / "applications.yml").rules


def client(name: str, **more: Any) -> dict[str, Any]:
    known = {"client_instance_id": name, "client_id": name, "principal": "User:a", "client_address": "127.0.0.1"}
    return {"cluster_id": "c", "step": 1} | known | more


def owned(
    clients: list[dict[str, Any]], rules: list[dict[str, Any]], aliases: list[dict[str, Any]] | None = None
) -> dict[str, tuple[Any, ...]]:
    tables = {"client_changes": clients, "application_rules": rules, "client_aliases": aliases or []}
    columns = ("application", "owner", "environment", "owned_by")
    return {row["client_instance_id"]: tuple(row[name] for name in columns) for row in answer("clients", tables)}


def test_the_first_rule_that_fits_counts(tmp_path: Path) -> None:
    clients = [
        client("by-principal", principal="User:pay-1", labels=[("group_id", "audit")]),
        client("by-group", labels=[("group_id", "audit-7")]),
        client("not-the-whole-group", labels=[("group_id", "audit-7x")]),
        client("not-an-alternative", labels=[("group_id", "auditor")]),
        client("web-first", client_address="10.1.0.0"), client("web-last", client_address="10.1.255.255"),
        client("web-before", client_address="10.0.255.255"), client("web-after", client_address="10.2.0.0"),
        client("other", client_address="10.1.2.3"),
        client("v6", client_address="fd12:0:0:0:0:0:0:1%eth0"),
        client("v6-outside", client_address="fe80:0:0:0:0:0:0:1"),
    ]  # fmt: skip
    none, web = (None, None, None, None), ("web", None, None, "rule 2")
    assert owned(clients, rules(tmp_path)) == {
        "by-principal": ("payments", "team-pay", "production", "rule 0"),
        "by-group": ("audit", "team-risk", None, "rule 1"), "not-the-whole-group": none, "not-an-alternative": none,
        "web-first": web, "web-last": web, "web-before": none, "web-after": none, "other": none,
        "v6": ("edge", "team-edge", None, "rule 3"), "v6-outside": none,
    }  # fmt: skip


def test_an_unknown_principal_or_address_is_said_and_never_guessed(tmp_path: Path) -> None:
    """Without its principal a client might be of the first rule, so no later one may claim it."""
    hashed = "0123456789abcdef" * 2
    clients = [
        client("web-1", principal=None, client_address="10.1.0.1"), client("web-2", client_address=None),
        client("web-3", client_address=hashed), client("shop", principal=None),
    ]  # fmt: skip
    unknown = (None, None, None)
    aliases = [{"client_id": "shop", "application": "shop", "environment": "test"}]
    assert owned(clients, rules(tmp_path), aliases) == {
        "web-1": (*unknown, "rule 0: its principal or address is unknown"),
        "web-2": (*unknown, "rule 2: its principal or address is unknown"),
        "web-3": (*unknown, "rule 2: its principal or address is unknown"),
        "shop": ("shop", None, "test", "alias of the client id"),
    }


def test_aliases_and_rules_of_the_cluster_go_first(tmp_path: Path) -> None:
    every = rules(tmp_path, "rules: [{client_id: '.*', application: any, owner: o}]")
    own = [row | {"cluster_id": "c", "application": "of c", "position": 5} for row in every]
    ended = [row | {"cluster_id": "c", "valid_to": 0, "position": 0, "application": "ended"} for row in every]
    clients = [client("a"), client("b", cluster_id="d"), client("named"), client("id", client_id="named")]
    clients += [client("elsewhere", client_id="named", cluster_id="d"), client("canary", client_id="named")]
    aliases = [
        {"client_instance_id": "id", "application": "i", "owner": "q"},
        {"client_instance_id": "canary", "application": "j"},
        {"client_id": "named", "application": "any n", "owner": "o"},
        {"client_id": "named", "application": "n", "owner": "p", "cluster_id": "c"},
    ]  # fmt: skip
    assert owned(clients, every + own + ended, aliases) == {
        "a": ("of c", "o", None, "rule 5"), "b": ("any", "o", None, "rule 0"),
        "elsewhere": ("any n", "o", None, "alias of the client id"),
        "named": ("n", "p", None, "alias of the client id"), "id": ("i", "q", None, "alias of the instance"),
        "canary": ("j", "p", None, "alias of the instance"),  # the owner that its own alias doesn't name
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("application: a", "rules.0: needed: at least one of client_id, principal, group_id, address_range"),
        ("client_id: a", "rules.0.application: needed"),
        (
            "client_id: a, application: b, team: c",
            "rules.0.team: no such field, allowed: client_id, principal, gr",
        ),
        ("client_id: '[', application: b", "rules.0: client_id is no regular expression that every engine reads alike"),
        ("group_id: '(?=a)b', application: b", "rules.0: group_id is no regular expression"),
        ("client_id: '[[:alpha:]]', application: b", "rules.0: client_id is no regular expression"),
        ("client_id: '(?P<n>a)', application: b", "rules.0: client_id is no regular expression"),
        ("principal: 'a{,3}', application: b", "rules.0: principal is no regular expression"),
        (
            "address_range: 10.1.0.0/33, application: b",
            "rules.0: address_range is no address range such as 10.1.0.0/16",
        ),
        (
            "address_range: 10.1.0.7/16, application: b",
            "rules.0: address_range is no address range .* has host bits set",
        ),
        ("client_id: 7, application: b", "rules.0.client_id: Input should be a valid string, got 7"),
    ],
)
def test_what_is_wrong_with_a_rule_is_one_line(tmp_path: Path, rule: str, message: str) -> None:
    with pytest.raises(AliasError, match=f"applications.yml: {message}") as caught:
        rules(tmp_path, f"rules: [{{{rule}}}]")
    assert "\n" not in str(caught.value)


def test_a_file_without_either_list_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AliasError, match="needed: a list aliases, a list rules, or both"):
        rules(tmp_path, "{}")


def test_sync_keeps_the_history_of_rules(tmp_path: Path) -> None:
    file, lake = tmp_path / "applications.yml", tmp_path / "lake"
    flags = ["--lake", str(lake), "--aliases-file", str(file)]
    for text in (RULES, RULES.replace("team-risk", "team-audit")):
        file.write_text(text)
        assert run_command("sync", flags) == 0
    rows = table(lake, "application_rules").to_pylist()
    assert {(row["position"], row["owner"]) for row in rows if row["valid_to"] is None} == {
        (0, "team-pay"), (1, "team-audit"), (2, None), (3, "team-edge"),
    }  # fmt: skip
    assert [(row["position"], row["owner"]) for row in rows if row["valid_to"] is not None] == [(1, "team-risk")]
    assert rows[0]["address_first"] is None
    assert {row["address_first"]: row["address_last"] for row in rows if row["position"] == 2} == {
        "010001000000": "010001255255"
    }
