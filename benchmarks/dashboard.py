"""How long the dashboard's queries take on a lake of 10,000 clients and ten million points.

python -m benchmarks.dashboard --lake DIR [--pages] [--spark]

Creates the lake if it is missing. Each query runs on a newly opened lake, which reads the tables' logs and footers
again (the file system's cache is warm), and then a second time. --pages also opens a served dashboard in Chromium.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from deltalake import DeltaTable

from benchmarks.dashboard_spark import ask_in_spark
from benchmarks.figures import print_figures, store_runs
from benchmarks.fleet_lake import build
from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.dashboards.pages import BY_PATH
from kafka_telemetry_lake.dashboards.questions import PREFIX, Consumer, Producer, names, question
from kafka_telemetry_lake.pipelines.query import lake_query
from kafka_telemetry_lake.pipelines.query.duckdb_tables import dataset
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from tests.support.ports import free_port

CLIENTS, PUSHES = 10_000, 98_000
RUNS = 3
FIRST_VISIT = "first visit"  # with a newly started server and browser
QUERIES = {
    "points by metric": "SELECT metric, count(*), sum(delta) FROM metric_points GROUP BY metric",
    "one metric": f"SELECT count(*), sum(delta) FROM metric_points WHERE metric = '{PREFIX}{Producer.SENT}'",
    "one client": "SELECT * FROM metric_points WHERE client_instance_id = (SELECT min(client_instance_id) FROM pushes)",
    "latest pushes": "SELECT * FROM pushes ORDER BY landed_at DESC LIMIT 10",
    "findings": "SELECT finding, count(*) FROM findings GROUP BY finding",
}
METRICS = {
    "groups": Consumer.OF_GROUPS,
    "metric_by_client": Producer.OVER_TIME,
    "metric_over_time": Producer.OVER_TIME,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--pages", action="store_true", help="open each page in a headless Chromium too")
    parser.add_argument("--spark", action="store_true", help="ask the same questions in Spark too")
    args = parser.parse_args()
    if not is_lake(str(args.lake)):
        build(args.lake, CLIENTS, PUSHES)
    parameters = _parameters(args.lake)
    times = {name: _ask(args.lake, name, parameters) for name in names()}
    queries = {name: _query(args.lake, sql) for name, sql in QUERIES.items()}
    figures = {
        "dashboard_points": float(_points(args.lake)),
        "dashboard_slowest_question_s": max(cold for cold, _, _ in times.values()),
        "dashboard_questions_s": sum(warm for _, warm, _ in times.values()),
        "dashboard_questions_cpu_s": sum(cpu for _, _, cpu in times.values()),
        "query_slowest_s": max(seconds for seconds, _ in queries.values()),
        "query_least_speedup_over_delta_rs": min(other / own for own, other in queries.values()),
        "query_most_speedup_over_delta_rs": max(other / own for own, other in queries.values()),
    }
    runs: dict[str, Any] = {"duckdb_cold_s": {}, "duckdb_s": {}, "duckdb_cpu_s": {}, "query_s": queries}
    for name, (cold, warm, cpu) in times.items():
        runs["duckdb_cold_s"][name], runs["duckdb_s"][name], runs["duckdb_cpu_s"][name] = cold, warm, cpu
        print(f"{name}: {cold:.3f} s, again {warm:.3f} s ({cpu:.3f} CPU-s)", flush=True)
    for name, (own, other) in queries.items():
        print(f"query {name}: {own:.3f} s, through delta-rs {other:.3f} s", flush=True)
    if args.spark:
        spark = ask_in_spark(args.lake, parameters, METRICS)
        runs["spark_s"] = {name: seconds for name, (seconds, _) in spark.items()}
        runs["spark_cpu_s"] = {name: cpu for name, (_, cpu) in spark.items()}
        figures["dashboard_spark_questions_s"] = sum(runs["spark_s"].values())
        figures["dashboard_spark_questions_cpu_s"] = sum(runs["spark_cpu_s"].values())
    if args.pages:
        runs["pages_s"] = pages = _open_pages(args.lake)
        figures["dashboard_first_visit_s"] = pages.pop(FIRST_VISIT)
        figures["dashboard_first_page_s"] = pages["problems"]
        figures["dashboard_slowest_page_s"] = max(pages.values())
    print_figures(figures)
    store_runs("dashboard", runs)


def _parameters(lake: Path) -> dict[str, Any]:
    opened = LakeReader(str(lake))
    opened.versions()
    stop: datetime = opened.ask("extent", {})["last"][0].as_py() + timedelta(milliseconds=1)
    start = stop - timedelta(hours=1)
    (client,) = opened.ask("instances", {"start": start, "stop": stop}).slice(0, 1).to_pylist()
    return {
        "start": start, "stop": stop, "first_window": start.replace(second=0, microsecond=0), "step_ms": 300_000,
        "top": 200, "instance": client["client_instance_id"], "metric": f"{PREFIX}{Producer.SENT}",
        "filters": 0, "client": client["client_id"], "group": "", "topic": "",
        "hour": stop.replace(minute=0, second=0, microsecond=0), "instances": 40, "entities": 40,
    }  # fmt: skip


def _ask(lake: Path, name: str, parameters: dict[str, Any]) -> tuple[float, float, float]:
    """Least seconds of a question over the last hour on a newly opened lake, and again; the latter's CPU seconds."""
    metrics = [f"{PREFIX}{metric}" for metric in METRICS.get(name, ())]
    cold: list[float] = []
    warm: list[float] = []
    cpu: list[float] = []
    for _ in range(RUNS):
        opened = LakeReader(str(lake))
        opened.versions()
        chosen = opened.ask("instances", parameters) if "chosen" in question(name).reads else None
        for times in (cold, warm):
            began, used = time.perf_counter(), time.process_time()
            opened.ask(name, parameters | {"metrics": metrics}, chosen)
            times.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    return min(cold), min(warm), min(cpu)


def _query(lake: Path, sql: str) -> tuple[float, float]:
    """Seconds of a query as `telemetry-lake query` runs it, and with every table read through delta-rs' datasets."""

    def through_delta_rs(connection: Any, name: str, table: DeltaTable, **_: Any) -> None:
        connection.register(name, dataset(table))

    def seconds(runs: int) -> float:
        times = []
        for _ in range(runs):
            began = time.perf_counter()
            lake_query.run_query(str(lake), sql).read_all()
            times.append(time.perf_counter() - began)
        return min(times)

    own = seconds(RUNS)
    with patch.object(lake_query, "register_table", through_delta_rs):
        return own, seconds(1)  # some take a minute


def _points(lake: Path) -> int:
    opened = LakeReader(str(lake))
    opened.versions()
    return next(int(size["rows"]) for size in opened.sizes() if size["table"] == "metric_points")


def _open_pages(lake: Path) -> dict[str, float]:
    """Seconds from the request for a page until it is complete, by page, on its first visit."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # only where pages are opened

    from tests.dashboard.conftest import CHROMIUM, settled, wait_until_served  # noqa: PLC0415  # the same
    from tests.dashboard.test_dashboard_pages import keep  # noqa: PLC0415  # the same

    port = free_port()
    argv = [sys.executable, "-m", "kafka_telemetry_lake", "dashboard", "--lake", str(lake), "--port", str(port)]
    seconds = {}
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as server, sync_playwright() as tools:
        try:
            wait_until_served(server, f"http://127.0.0.1:{port}")
            page = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]).new_page()
            for name, path in {FIRST_VISIT: "subscriptions", **{path or "problems": path for path in BY_PATH}}.items():
                began = time.perf_counter()
                page.goto(f"http://127.0.0.1:{port}/{path}?range=1h")
                settled(page)
                seconds[name] = time.perf_counter() - began
                print(f"page {name}: {seconds[name]:.2f} s", flush=True)
                keep(page, f"large-{name.replace(' ', '-')}")
        finally:
            server.terminate()
    return seconds


if __name__ == "__main__":
    main()
