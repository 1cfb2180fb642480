"""The page about KIP-714: which of its rules each library and version obeys, and by how many pushes that is known."""

from __future__ import annotations

import pandas as pd

from kafka_telemetry_lake.dashboards.panels import on_demand
from kafka_telemetry_lake.dashboards.scene import Scene
from kafka_telemetry_lake.dashboards.show import table

MOST_AT_ONCE = 10_000  # client instances of a lake for which the page is computed without being asked
# Rule of the view: in a word, the section of KIP-714, and when it is obeyed.
RULES = {
    "interval": (
        "interval kept",
        "Throttling and rate-limiting",
        "No push comes before the interval is over, unless an end or a new subscription allows it.",
    ),
    "no_gap": (
        "no push missing",
        "Client behavior",
        "No push is missing between two; the network's or a broker's fault counts too.",
    ),
    "subscribed_names": (
        "names as subscribed",
        "Client metrics subscription",
        "Each metric was asked for by a subscription; known where telemetry-lake sync runs.",
    ),
    "delta_temporality": (
        "deltas",
        "Metric aggregation temporality",
        "Counters are pushed as deltas, as brokers ask; a proxy may ask for totals.",
    ),
    "readable": (
        "readable",
        "Metrics serialization format",
        "Each push can be decompressed and decoded, and none of its points is rejected.",
    ),
    "goodbye": (
        "goodbye",
        "Client termination",
        "An instance that has ended pushed with the terminating flag; after a crash it can't.",
    ),
}


def page(scene: Scene) -> None:
    many = scene.clients.known.instances > MOST_AT_ONCE
    if many and not on_demand("Does each library obey KIP-714?", "This reads every push of the lake."):
        return
    rows = scene.rows("client_conformance")
    assert rows is not None
    named = rows["software_name"].fillna("unknown") + " " + rows["software_version"].fillna("unknown")
    rows = rows.assign(software=named, share=100 * rows["broken"] / rows["checked"])
    cluster = {"cluster_id": "cluster"} if rows["cluster_id"].nunique() > 1 else {}
    table(
        _card(rows),
        {
            "software": "version",
            "library": "library",
            **cluster,
            **{rule: words for rule, (words, *_) in RULES.items()},
        },
        "Libraries and rules",
        "Yes, known by so many pushes, points or instances; or no, and how many of them are against the rule.",
        "No client has pushed yet, or the job's lifecycle stage has not written any.",
    )
    if not rows.empty:
        _broken(rows[rows["broken"] > 0].sort_values(["share", "broken"], ascending=False))
    meanings = [{"rule": words, "meaning": meaning, "section": section} for words, section, meaning in RULES.values()]
    table(
        pd.DataFrame(meanings),
        {"rule": "rule", "meaning": "obeyed if", "section": "section of KIP-714"},
        "What the rules mean",
        "A library alone, before anybody has it, is tried by `make conformance`: docs/conformance.md.",
    )


def _broken(rows: pd.DataFrame) -> None:
    words = [RULES[rule][0] for rule in rows["rule"]]
    table(
        rows.assign(rule=words, client_instance_id=rows["example"], evidence=_evidence(rows)),
        {
            "software": "version",
            "rule": "rule",
            "share": "against it (%)",
            "evidence": "evidence",
            "client_instance_id": "most often",
            "section": "section of KIP-714",
        },
        "Rules that are broken",
        none="None: all libraries obey all rules of which something tells.",
    )


def _card(rows: pd.DataFrame) -> pd.DataFrame:
    """A row of each version and cluster, with a verdict in words of each rule of which something tells."""
    keys = ["software", "library", "cluster_id"]
    # What has no name is shown by a word that is a name, too.
    shown = rows.assign(library=rows["library"].fillna("unknown")).groupby([*keys, "rule"], dropna=False)
    summed = shown[["broken", "checked"]].sum().reset_index()
    summed["verdict"] = [
        f"no: {broken:,} of {checked:,}" if broken else f"yes, {checked:,}"
        for broken, checked in zip(summed["broken"], summed["checked"], strict=True)
    ]
    wide = summed.set_index([*keys, "rule"])["verdict"].unstack("rule").reset_index()
    return wide.reindex(columns=[*keys, *RULES]).sort_values(keys)


def _evidence(broken: pd.DataFrame) -> list[str]:
    texts = []
    for _, row in broken.iterrows():
        instances = f"{row['instances']:,} instance{'' if row['instances'] == 1 else 's'}"
        texts.append(f"{row['broken']:,} of {row['checked']:,}, in {instances}")
    return texts
