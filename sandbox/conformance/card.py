"""Makes the card of a client: starts it once for each life, and judges what it did."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.conformance.judge import Verdict, judge
from kafka_telemetry_lake.sandbox.conformance.lives import FIRST, LIVES, Life, Stage
from kafka_telemetry_lake.sandbox.conformance.receiver import ScriptedReceiver
from kafka_telemetry_lake.sandbox.conformance.seen import BROKEN, OBEYED
from kafka_telemetry_lake.sandbox.conformance.under_test import TOPIC, check, start
from kafka_telemetry_lake.udfs.errors import CannotRunError

_CELLS = {OBEYED: "yes", BROKEN: "**no**"}


@dataclass(frozen=True)
class Card:
    """What a client did about each rule of KIP-714.

    Attributes:
        client: its command, or its name.
        software: name and version that it says (KIP-511).
    """

    client: str
    software: str
    verdicts: Sequence[Verdict]


def make_card(client: str, lives: Sequence[str] = tuple(LIVES), at_once: int = 3) -> Card:
    """The card of a client, made with a broker of its own.

    Args:
        client: as for `under_test.start`.
        lives: names in ``LIVES``; rules of which the others would tell are not seen.
        at_once: so many lives at the same time: they mostly wait.

    Raises:
        CannotRunError: there is no broker or no such client, or it ended before it was asked to.
    """
    check(client)
    with LocalCluster() as cluster, ThreadPoolExecutor(at_once) as pool:
        cluster.create_topic(TOPIC)
        lived = dict(zip(lives, pool.map(lambda name: _live(client, name, cluster), lives), strict=True))
    software = next((life.software for life in lived.values() if any(life.software)), ("", ""))
    return Card(client, " ".join(software).strip(), judge(lived))


def _live(client: str, name: str, cluster: LocalCluster) -> Life:
    receiver = ScriptedReceiver(cluster.broker(1).port, FIRST)
    servers = receiver.bootstrap_servers
    folder = cluster.folder / name
    folder.mkdir()
    with receiver, LocalClients(cluster, servers) as clients:
        started = start(client, clients, f"conformance-{name}", servers, folder)
        stage = Stage(receiver, started.close, started.ended)
        LIVES[name](stage)
        return stage.life()


def as_text(card: Card) -> str:
    """A table of rule, section, verdict and evidence, and how many rules are obeyed."""
    head = ("rule", "section of KIP-714", "verdict", "evidence")
    rows = [head, *((each.rule, each.section, each.verdict, each.evidence) for each in card.verdicts)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    kept, broken = (sum(each.verdict == verdict for each in card.verdicts) for verdict in (OBEYED, BROKEN))
    return "\n".join([*lines, "", f"{card.software or 'unknown software'}: {kept} rules obeyed, {broken} broken"])


def as_json(card: Card) -> str:
    return json.dumps(asdict(card), indent=1) + "\n"


def read_card(file: Path) -> Card:
    """A card from its JSON. Raises ``CannotRunError`` for another file."""
    try:
        stored: dict[str, Any] = json.loads(file.read_text("utf-8"))
        return Card(stored["client"], stored["software"], [Verdict(**each) for each in stored["verdicts"]])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CannotRunError(f"{file} is no card: {error}") from None


def as_table(cards: Sequence[Card]) -> str:
    """Rules by clients in Markdown, and a table of what was seen of those that aren't obeyed.

    Raises:
        CannotRunError: their rules aren't the same.
    """
    if len({tuple(each.rule for each in card.verdicts) for card in cards}) > 1:
        raise CannotRunError("the cards have different rules: make them again")
    names = [f"{card.software}{', consumer' if card.client.endswith('-consumer') else ''}" for card in cards]
    lines = [f"| rule | {' | '.join(names)} |", "|---" * (len(cards) + 1) + "|"]
    seen = ["| rule | client | what it did |", "|---|---|---|"]
    for of_rule in zip(*(card.verdicts for card in cards), strict=True):
        rule = of_rule[0].rule
        lines.append(f"| {rule} | {' | '.join(_CELLS.get(each.verdict, each.verdict) for each in of_rule)} |")
        others = [(name, each) for name, each in zip(names, of_rule, strict=True) if each.verdict != OBEYED]
        seen += [f"| {rule} | {name} | {each.evidence} |" for name, each in others]
    return "\n".join([*lines, "", *seen]) + "\n"
