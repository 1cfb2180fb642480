"""The plot of a finding: what its rule measures, through time, with its bounds, what changed, and its healthy peers.

Measure, bounds and condition are those of the rule (`pipelines.findings.measured`), by the hour as findings are judged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pandas as pd
import sqlglot
import streamlit as st

from kafka_telemetry_lake.dashboards.answers import answer
from kafka_telemetry_lake.dashboards.clients import ClientsOfId
from kafka_telemetry_lake.dashboards.panels import on_demand
from kafka_telemetry_lake.dashboards.plots import lines
from kafka_telemetry_lake.dashboards.questions import Parameter, filled, in_words, question, with_relation
from kafka_telemetry_lake.dashboards.scene import HOUR_S, Scene, first
from kafka_telemetry_lake.dashboards.show import heading, nothing, plain, readable
from kafka_telemetry_lake.pipelines.findings.measured import NotPlottedError, measured_sql
from kafka_telemetry_lake.pipelines.findings.model import INSTANCE, Rule
from kafka_telemetry_lake.pipelines.findings.rules import rules
from kafka_telemetry_lake.pipelines.query.views import parse_view

TITLE = "What the finding measures, by hour"
QUESTION, MEASURES = "_finding_measure", "measures"
CLIENT_ID = "client_id"
NOUNS = {INSTANCE: "client instance", CLIENT_ID: "client id", "group": "consumer group"}  # others: the scope's name
MOST_PEERS = 100
MOST_NAMED, LONGEST = 3, 60  # applications or software in a sentence, characters of each
MOST_READ = 50_000  # pushes of the range, whose points are read
# Of whom a filter leaves the clients, so that what changed about them is marked; of others all changes are.
FILTERS_OF = {CLIENT_ID: "client", "group": "group", "principal": "principal"}
OPENS, CLOSES, MEDIAN = "opens at", "closes at", "median of healthy peers"
QUARTILES = ("lower quartile of healthy peers", "upper quartile of healthy peers")


@dataclass(frozen=True)
class Peers:
    """Whom a subject is compared with.

    Attributes:
        like: who they are, in words.
        known: how many pushed in the time range.
        ill: those of them that have this finding open.
        healthy: names of the others, at most `MOST_PEERS`; None: all subjects of the cluster that the rule knows.
        sampled: of how many `healthy` is a sample; 0: it has all.
    """

    like: str
    known: int = 0
    ill: tuple[str, ...] = ()
    healthy: tuple[str, ...] | None = None
    sampled: int = 0


def finding_measure(scene: Scene, row: pd.Series) -> None:
    """Plot the measure of a finding.

    Args:
        row: its finding, scope, subject and client_id, and of open findings cluster_id. Scope `instance`: of a single
            client instance, the subject.
    """
    rule = rules().get(row["finding"])
    try:
        select = measured_sql(row["finding"], scene.lake.overrides, row["scope"] == INSTANCE)
    except NotPlottedError as why:
        _say(f"Not plotted: {why}.")
        return
    assert rule is not None
    note = "This reads all data points of the time range, and may take a while."
    if scene.clients.known.pushes > MOST_READ and not on_demand(TITLE, note):
        return
    subject = _text(row["subject"])
    peers = peers_of(scene, rule, row, subject)
    hours = measured_hours(scene, rule, select, row, subject, peers)
    if hours["measure"].isna().all():
        _say("This rule measured nothing of it in the hours of this time range. Widen the range.")
        return
    own = f"this {_noun(row)}"
    lines(
        series(hours, own),
        "value",
        rule.unit,
        TITLE,
        "name",
        HOUR_S,
        f"{rule.title}: the number that the rule compares, of each hour of the time range, as findings are judged. "
        "Vertical lines mark what changed: point at one to read what.",
        [own, OPENS, CLOSES, MEDIAN],
        band=QUARTILES,
        marks=_about(scene, row).marks(),
        words=" ".join(words(hours, rule, own, peers)),
    )


def measured_hours(scene: Scene, rule: Rule, select: str, row: pd.Series, subject: str, peers: Peers) -> pd.DataFrame:
    """The answer to question `_finding_measure`: a row for each hour; `attrs["sql"]` is its statement."""
    # Before any evaluation findings name no cluster.
    clusters = [_text(row["cluster_id"])] if "cluster_id" in row else ["", *scene.clients.known.clusters]
    values: dict[str, Parameter] = {
        "start": scene.start,
        "stop": scene.stop,
        "clusters": clusters,
        "subject": subject,
        "less": int(rule.worse == "less"),
        "all_peers": int(peers.healthy is None),
        "peers": list(peers.healthy or [""]),
        "ill": list(peers.ill or [""]),
    }
    of, measures = question(QUESTION), parse_view(MEASURES, select)
    statement = with_relation(MEASURES, measures.duckdb, of.duckdb)
    answered = answer(
        (scene.lake.uri, scene.versions, statement, str(values)),
        lambda: in_words(QUESTION),
        lambda asked: scene.lake.run(QUESTION, statement, of.reads - {MEASURES} | measures.reads, values, {}, asked),
    )
    rows = first(answered.to_pandas(), of.most or 0)
    shown = sqlglot.transpile(measures.duckdb, read="duckdb", write="duckdb", pretty=True)[0]
    rows.attrs["sql"] = filled(with_relation(MEASURES, shown, of.pretty), values)
    return rows


def peers_of(scene: Scene, rule: Rule, row: pd.Series, subject: str) -> Peers:
    """Whom to compare with.

    Of an instance its siblings. Of a client id those of its application, or if there are none, of its software. Of what
    else has findings all others of the cluster.
    """
    ill = _ill(scene, rule, row) - {subject}
    if row["scope"] not in (INSTANCE, CLIENT_ID):
        return Peers(f"other {_noun(row)}s of its cluster", len(ill), tuple(sorted(ill)))
    clusters = [_text(row["cluster_id"])] if "cluster_id" in row else ["", *scene.clients.known.clusters]
    found = Peers("other clients")
    for like, others in _in_common(scene, row, clusters):
        names = {name for name in others if name} - {subject}
        # A sample that is the same on each look, and that no naming scheme decides.
        healthy = sorted(names - ill, key=lambda name: hashlib.blake2b(name.encode()).digest())
        sampled = len(healthy) if len(healthy) > MOST_PEERS else 0
        found = Peers(f"other {like}", len(names), tuple(sorted(ill & names)), tuple(healthy[:MOST_PEERS]), sampled)
        if names:
            break
    return found


def _in_common(scene: Scene, row: pd.Series, clusters: list[str]) -> Iterator[tuple[str, Iterable[str]]]:
    """Who has something in common with what has a finding: in words, and their names, its own among them."""
    own = _of_clusters(_of_client_id(scene, row).instances.to_pandas(), clusters)
    if row["scope"] == INSTANCE:
        yield "instances of its client id", own["client_instance_id"]
        return
    everybody, owners = _everybody(scene), scene.clients.owners.to_pandas()
    of_own = owners[owners["client_instance_id"].isin(own["client_instance_id"])]
    applications = of_own["application"].dropna().unique()
    if len(applications):
        theirs = owners["client_instance_id"][owners["application"].isin(applications)]
        like = f"client ids of application {_listed(applications)}"
        yield like, _of_clusters(everybody.listed(theirs), clusters)["client_id"]
    software = own["client_software_name"].dropna().unique()
    rows = everybody.ask("client_ids_of_software", software=["", *software], clusters=clusters)
    yield f"client ids of software {_listed(software)}", rows["client_id"]


def _of_clusters(instances: pd.DataFrame, clusters: list[str]) -> pd.DataFrame:
    return instances[instances["cluster_id"].fillna("").isin(clusters)]


def _everybody(scene: Scene) -> Scene:
    """The scene of all clients, whoever the page's filters leave."""
    return scene.selecting(replace(scene.selection, filters=()))


def _ill(scene: Scene, rule: Rule, row: pd.Series) -> set[str]:
    """Who has the finding open in a finding's cluster, whoever the page's filters leave."""
    if "finding_changes" not in dict(scene.versions):
        return set()
    found = _everybody(scene).open_findings()
    if "cluster_id" in row:
        found = found[found["cluster_id"].fillna("") == _text(row["cluster_id"])]
    return set(found[found["finding"] == rule.id]["subject"].dropna())


def _about(scene: Scene, row: pd.Series) -> Scene:
    """The scene of what has a finding alone, where a filter knows it; of an instance that of its client id."""
    scope, name = (CLIENT_ID, row["client_id"]) if row["scope"] == INSTANCE else (row["scope"], row["subject"])
    filters = ((FILTERS_OF[scope], (name,)),) if scope in FILTERS_OF and name else ()
    if scene.selection.filters == filters:
        return scene
    selection = replace(scene.selection, filters=filters)
    if scope == CLIENT_ID:
        return replace(scene, selection=selection, clients=_of_client_id(scene, row))
    return scene.selecting(selection)


def _of_client_id(scene: Scene, row: pd.Series) -> ClientsOfId:
    """The client instances of the client id that a finding is about, or whose instance it is about."""
    name = _text(row["client_id"] if row["scope"] == INSTANCE else row["subject"])
    selection = replace(scene.selection, filters=((FILTERS_OF[CLIENT_ID], (name,)),))
    return ClientsOfId(scene.lake, scene.versions, selection, scene.start, scene.stop, name)


def series(hours: pd.DataFrame, own: str) -> pd.DataFrame:
    """The lines of the plot, a row for each line and hour: at_ms, name, value."""
    names = {"measure": own, "opens": OPENS, "closes": CLOSES, "median": MEDIAN}
    names |= dict(zip(("low", "high"), QUARTILES, strict=True))
    hours = hours.assign(**{name: _throughout(hours[name]) for name in ("opens", "closes")})
    if hours["closes"].equals(hours["opens"]):
        hours = hours.drop(columns="closes")
    rows = hours.melt("at_ms", [name for name in names if name in hours.columns], "name", "value")
    rows = rows.dropna(subset=["value"]).replace({"name": names})
    rows.attrs = hours.attrs
    return rows


def _throughout(bounds: pd.Series) -> pd.Series:
    """A bound that is the same in all hours is that of the hours without a measure too."""
    bounds = bounds.astype(float)
    return bounds.fillna(bounds.dropna().iloc[0]) if bounds.nunique() == 1 else bounds


def words(hours: pd.DataFrame, rule: Rule, own: str, peers: Peers) -> Iterator[str]:
    """What the plot shows, in sentences: the measure, where the finding opens and closes, and the healthy peers."""

    def said(value: float) -> str:
        return readable(value, rule.unit)

    known = hours.dropna(subset=["measure"])
    last, most = known.iloc[-1], known.iloc[int(known["measure"].argmax())]
    had = known[known["had_it"] == 1]
    at = datetime.fromtimestamp(most["at_ms"] / 1000, UTC)
    yield (
        f"{own.capitalize()} was measured in {len(known):,} {'hour' if len(known) == 1 else 'hours'}, {len(had):,} of "
        f"them with the finding: last {said(last['measure'])}, least {said(known['measure'].min())}, most "
        f"{said(most['measure'])} in the hour from {at:%Y-%m-%d %H:%M} UTC."
    )
    opens, closes = known["opens"], known["closes"].fillna(known["opens"])
    beyond = "below" if rule.worse == "less" else "above"
    if opens.nunique() == 1 and closes.nunique() == 1:
        closing = "" if opens.iloc[0] == closes.iloc[0] else f", and closes at {said(closes.iloc[0])}"
        at_or_above = "above" if opens.iloc[0] == 0 else "at"
        yield f"The finding opens {at_or_above} {said(opens.iloc[0])}{closing}; {rule.worse} is worse."
    elif opens.notna().any():
        yield f"Each hour has its own bound, {said(opens.min())} to {said(opens.max())}; {rule.worse} is worse."
    other = had[had["measure"] > had["opens"]] if beyond == "below" else had[had["measure"] < had["opens"]]
    if len(other):
        yield f"In {len(other):,} of the hours with the finding another part of its condition held."
    yield _of_peers(hours, peers, said)


def _of_peers(hours: pd.DataFrame, peers: Peers, said: Callable[[float], str]) -> str:
    compared = hours[hours["peers"] > 0]
    if len(compared):
        last, least, most = compared.iloc[-1], int(compared["peers"].min()), int(compared["peers"].max())
        count = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        of = f", a sample of {peers.sampled:,}" if peers.sampled else ""
        half = f", half of them (grey bars) from {said(last['low'])} to {said(last['high'])}"
        return (
            f"Healthy peers ({peers.like} that never have this finding here): {count} an hour{of}; in their last hour "
            f"median {said(last['median'])}{half if last['low'] < last['high'] else ''}."
        )
    ill = max(len(peers.ill), int(hours["ill_peers"].max()))
    if peers.healthy is not None and not peers.known:
        return f"No healthy peers: there are no {peers.like} in this time range."
    if ill:
        return f"No healthy peers: of {peers.like}, those that have the measure have the finding too ({ill:,})."
    return f"No healthy peers: of no {peers.like} has the rule a measure in these hours."


def _say(line: str) -> None:
    with st.container(border=True):
        heading(TITLE)
        nothing(plain(line))


def _text(value: str | None) -> str:
    return "" if pd.isna(value) else str(value)


def _noun(row: pd.Series) -> str:
    return str(NOUNS.get(row["scope"], row["scope"]))


def _listed(names: Iterable[str]) -> str:
    texts = [name if len(name) <= LONGEST else f"{name[:LONGEST]}…" for name in sorted(names)]
    return ", ".join(texts[:MOST_NAMED]) + (" and others" if len(texts) > MOST_NAMED else "")
