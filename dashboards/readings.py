"""Traffic lights: may one believe what the pages show? Freshness, coverage, readable pushes, receivers, findings."""

from __future__ import annotations

from typing import Any

from kafka_telemetry_lake.dashboards.address import address
from kafka_telemetry_lake.dashboards.elements import element
from kafka_telemetry_lake.dashboards.header import age_text, freshness
from kafka_telemetry_lake.dashboards.problems import is_evaluated
from kafka_telemetry_lake.dashboards.scene import Scene

# Coverage: pushes that landed of those that were due. Below: what the light shows.
GOOD_COVERAGE, FAIR_COVERAGE = 0.99, 0.95
GOOD_REJECTED, FAIR_REJECTED = 0.0, 0.001


def lights(scene: Scene) -> None:
    """Traffic lights: may one believe what the pages show?"""
    element("lights", {"title": "Can this be believed?", "lights": readings(scene)}, key="lights")


def readings(scene: Scene) -> list[dict[str, Any]]:
    """The traffic lights; each has a bound that its meaning names."""
    level, age_s = freshness(scene)
    activity = scene.ask("activity")
    counted = activity.groupby("outcome")["pushes"].sum()
    pushes = int(counted.sum())
    rejected = int(counted.get("quarantined", 0)) / pushes if pushes else 0.0
    covered = coverage(scene)
    dropped = int(counted.get("dropped", 0))

    def to(page: str) -> str:
        return address(page, scene.selection)

    evaluated = is_evaluated(scene)
    return [
        _light(
            "Freshness",
            level,
            f"{age_text(age_s)} old",
            "Age of the newest push: green up to two push intervals.",
            to("pipeline"),
        ),
        _light(
            "Coverage",
            "unknown"
            if covered is None
            else "good"
            if covered >= GOOD_COVERAGE
            else "fair"
            if covered >= FAIR_COVERAGE
            else "bad",
            "unknown" if covered is None else f"{covered:.1%}",
            "Pushes that landed of those that were due: green from 99 %.",
            to("lifecycle"),
        ),
        _light(
            "Readable",
            "good" if rejected <= GOOD_REJECTED else "fair" if rejected <= FAIR_REJECTED else "bad",
            f"{1 - rejected:.2%}",
            "Pushes that weren't quarantined: green if all, red below 99.9 %.",
            to("pipeline"),
        ),
        _light(
            "Receivers",
            "bad" if dropped else "good",
            f"{dropped:,} dropped",
            "Pushes whose payload a broker's receiver dropped: green if none.",
            to("pipeline"),
        ),
        _light(
            "Findings",
            "good" if evaluated else "unknown",
            "evaluated" if evaluated else "never evaluated",
            "telemetry-lake findings, or ingest --findings-minutes, looks for them.",
            to("findings"),
        ),
    ]


def coverage(scene: Scene) -> float | None:
    """Pushes that landed of those that were due between each instance's first and last push; None: none was due."""
    return scene.totals.landed / scene.totals.due if scene.totals.due else None


def _light(name: str, level: str, text: str, meaning: str, where: str) -> dict[str, str]:
    return {"name": name, "level": level, "text": text, "meaning": meaning, "address": where}
