"""What the command says about a client that it can't try, in one line, and what it gets besides the client."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from kafka_telemetry_lake.sandbox.conformance import card as cards
from kafka_telemetry_lake.sandbox.conformance.__main__ import main
from kafka_telemetry_lake.sandbox.conformance.card import Card, as_json
from kafka_telemetry_lake.sandbox.conformance.judge import Verdict
from kafka_telemetry_lake.sandbox.conformance.lives import FIRST, LIVES, ClientEndedError, Stage
from kafka_telemetry_lake.sandbox.conformance.receiver import ScriptedReceiver
from kafka_telemetry_lake.sandbox.conformance.under_test import NoClientError, start

NO_CLIENTS: Any = None  # which a command doesn't need


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-client {bootstrap}"], "no-such-client is no command, and none of java-3.9.1, "),
        (["java-1.0"], "java-1.0 is no command, and none of java-3.9.1, "),
        (["true"], "the command has no {bootstrap}, in whose place "),
        (["it's {bootstrap}"], "the command can't be split into words: No closing quotation"),
        (["--at-once", "0", "librdkafka"], "--at-once must be 1 or more"),
        (["--json", "{tmp}/none/card.json", "librdkafka"], "--json: {tmp}/none is no folder"),
        (["--json", "{tmp}", "librdkafka"], "--json: {tmp} is a folder"),
        (["--table", "{tmp}/missing.json"], "{tmp}/missing.json is no card: "),
        (["--table", "{tmp}/other.json"], "{tmp}/other.json is no card: "),
        (["--table", "{tmp}/one.json", "{tmp}/two.json"], "the cards have different rules: make them again"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "LocalCluster", None)  # nothing is started before it is said
    (tmp_path / "other.json").write_text("[1]")
    for name, rules in (("one", ("codec",)), ("two", ("codec", "readable"))):
        card = Card("mine", "mine 1", [Verdict(rule, "", "obeyed", "") for rule in rules])
        (tmp_path / f"{name}.json").write_text(as_json(card))
    assert main([each.replace("{tmp}", str(tmp_path)) for each in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(said.replace("{tmp}", str(tmp_path)))
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo no such flag: -x >&2; echo; exit 3", "me ended by itself, exit code 3: no such flag: -x"),
        ("echo usage: mine; exit 1", "me ended by itself, exit code 1: usage: mine"),
        ("exit 0", "me ended by itself, exit code 0: it wrote nothing"),
    ],
)
def test_a_command_that_ends_at_once(script: str, said: str, tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as broker,
        ScriptedReceiver(broker.getsockname()[1], FIRST) as receiver,
    ):
        command = f"sh -c '{script}' {{bootstrap}}"
        client = start(command, NO_CLIENTS, "me", receiver.bootstrap_servers, tmp_path)
        with pytest.raises(ClientEndedError) as raised:
            LIVES["obeys"](Stage(receiver, client.close, client.ended))
    assert str(raised.value) == said


def test_a_command_that_runs_is_closed_by_the_end_of_its_input(tmp_path: Path) -> None:
    client = start("sh -c 'cat; echo bye' {bootstrap}", NO_CLIENTS, "me", "127.0.0.1:1", tmp_path)
    assert client.ended() is None
    client.close()
    assert client.ended() == "me ended by itself, exit code 0: bye"


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    file = tmp_path / "program"
    file.write_bytes(b"\0")
    file.chmod(0o755)
    with pytest.raises(NoClientError, match=r"can't be started: .*Exec format error"):
        start(f"{file} {{bootstrap}}", NO_CLIENTS, "me", "127.0.0.1:1", tmp_path)
