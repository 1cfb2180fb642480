"""How long a served dashboard's pages take, for one visitor and for ten at once, on a lake of a million clients.

python -m benchmarks.dashboard_visits --lake DIR [--points 100000000]

Creates the lake if it is missing. A visitor is a WebSocket that asks the server for a page as a browser does, until
the page's script has ended; what a browser then draws isn't counted (`benchmarks.dashboard --pages` does). New: the
first page of a time range that nobody has asked for yet, so that nothing is cached. Next: any other page of a range, as
for who follows links. Again: the same page once more. The ten open all pages in their own order, of the lake's latest
hour as people do who look at one incident, and wait some seconds on each.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import psutil
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from benchmarks.before import ROOT
from benchmarks.figures import print_figures, store_runs
from benchmarks.million_lake import build_million
from kafka_telemetry_lake.dashboards.lake import LakeReader
from kafka_telemetry_lake.dashboards.pages import BY_PATH
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from tests.dashboard.conftest import wait_until_served
from tests.support.ports import free_port

VISITS, VISITORS, PAUSE_S = 3, 10, 5.0
FIRST = ("problems", "fleet", "client", "producers")  # pages that are opened first, of a range that is new
KINDS = ("new", "next", "again")
LIMIT_S = 120.0
IDLE_CPU_S = 0.2  # in a pause


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--points", type=int, default=100_000_000)
    parser.add_argument("--pages", nargs="*", default=[path or "problems" for path in BY_PATH])
    parser.add_argument("--visits", type=int, default=VISITS, help="of each page, by one visitor")
    parser.add_argument("--alone", action="store_true", help="only one visitor; stores nothing")
    args = parser.parse_args()
    if not is_lake(str(args.lake)):
        print(f"points: {build_million(args.lake, args.points)}", flush=True)
    pages, runs = list(args.pages), dict[str, Any]()
    opened = LakeReader(str(args.lake))
    opened.versions()
    subjects, ranges = subjects_of(opened), ranges_of(opened)
    with served(args.lake) as (port, server):
        runs["prepared_cpu_s"] = prepared(port, server)
        print(f"prepared: {runs['prepared_cpu_s']:.1f} CPU-s", flush=True)
        for kind, times in _one(port, server, pages, subjects, ranges, args.visits).items():
            runs[f"{kind}_s"] = {page: [seconds for seconds, _ in visits] for page, visits in times.items()}
            runs[f"{kind}_cpu_s"] = {page: [cpu for _, cpu in visits] for page, visits in times.items()}
        runs["memory_mb"] = server.memory_info().rss / 1e6
    if not args.alone:
        with served(args.lake) as (port, server):
            prepared(port, server)
            runs["ten_s"] = _ten(port, pages, subjects)
            runs["memory_mb"] = server.memory_info().rss / 1e6
    runs["load"] = os.getloadavg()[0]
    _print(runs)
    if not args.alone:
        name = f"1e{len(str(args.points)) - 1}"
        figures = {
            f"dashboard_{name}_{kind}_{label}_s": float(np.quantile(_all(runs[f"{kind}_s"]), share))
            for kind in (*KINDS, "ten")
            for label, share in (("p50", 0.5), ("p95", 0.95))
        }
        print_figures(figures | {f"dashboard_{name}_{about}": runs[about] for about in ("load", "memory_mb")})
        store_runs(f"dashboard_{name}", runs)


def _all(by_page: dict[str, list[float]]) -> list[float]:
    return [second for seconds in by_page.values() for second in seconds]


def _print(runs: dict[str, Any]) -> None:
    kinds = [kind for kind in (*KINDS, "ten") if f"{kind}_s" in runs]
    print(f"load {runs['load']:.1f}; seconds: median, 95th percentile (median CPU-s of the server)")
    print("| page | " + " | ".join(kind for kind in kinds) + " |\n|---|" + "---|" * len(kinds))
    for page in runs["next_s"]:
        cells = []
        for kind in kinds:
            times = runs[f"{kind}_s"].get(page)
            if times is None:
                cells.append("")
                continue
            cpu = runs.get(f"{kind}_cpu_s", {}).get(page)
            used = "" if cpu is None else f" ({np.median(cpu):.2f})"
            cells.append(f"{np.median(times):.2f}, {np.quantile(times, 0.95):.2f}{used}")
        print(f"| {page} | {' | '.join(cells)} |", flush=True)


def subjects_of(opened: LakeReader) -> dict[str, dict[str, str]]:
    """What the address of some pages says besides the range: what the page is about."""
    (row,) = opened.rows("pushes", top=1).to_pylist()
    return {
        "client": {"instance": row["client_instance_id"]},
        "client-id/one": {"client": row["client_id"]},
        "topic/one": {"topic": "captured"},
        "search": {"q": "producer"},
    }


@contextmanager
def served(lake: Path, root: Path = ROOT) -> Iterator[tuple[int, psutil.Process]]:
    """Port and process of a dashboard; root: the checkout of its build."""
    port = free_port()
    argv = [
        sys.executable,
        "-m",
        "kafka_telemetry_lake",
        "dashboard",
        "--lake",
        str(lake.absolute()),
        "--port",
        str(port),
    ]
    environment = os.environ | {"PYTHONPATH": str(root)}
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, cwd=root, env=environment) as server:
        try:
            wait_until_served(server, f"http://127.0.0.1:{port}")
            yield port, psutil.Process(server.pid)
        finally:
            server.terminate()


def prepared(port: int, server: psutil.Process) -> float:
    """CPU seconds until the server has imported what all pages need, and prepared the first page."""
    visit(port, "subscriptions", {"range": "15m"})
    used = 0.0
    while (now := cpu_s(server)) > used + IDLE_CPU_S:
        used = now
        time.sleep(PAUSE_S)
    return now


Times = dict[str, list[tuple[float, float]]]


def _one(
    port: int, server: psutil.Process, pages: list[str], subjects: dict[str, dict[str, str]],
    ranges: Iterator[dict[str, str]], visits: int,
) -> dict[str, Times]:  # fmt: skip
    """Seconds and the server's CPU seconds of each page's visits, by kind of visit."""
    times: dict[str, Times] = {kind: defaultdict(list) for kind in KINDS}
    others = next(ranges)
    visit(port, "fleet", others)

    def look(kind: str, page: str, query: dict[str, str]) -> None:
        used = cpu_s(server)
        seconds = visit(port, page.partition("/")[0], query | subjects.get(page, {}))
        times[kind][page].append((seconds, cpu_s(server) - used))
        print(f"{kind} {page}: {seconds:.2f} s, {times[kind][page][-1][1]:.2f} CPU-s", flush=True)

    for number in range(visits):
        others = next(ranges) if number else others
        for page in filter(FIRST.__contains__, pages):
            look("new", page, next(ranges))
        visit(port, "fleet", others)
        for page in pages:
            look("next", page, others)
            look("again", page, others)
    return times


def ranges_of(opened: LakeReader) -> Iterator[dict[str, str]]:
    """Fixed ranges of nearly all of the lake's pushes, no two alike. Each begins and ends within a window."""
    (extent,) = opened.ask("extent", {}).to_pylist()
    for number in itertools.count(1):
        start, stop = (extent["first"] + timedelta(seconds=number), extent["last"] - timedelta(seconds=number))
        yield {
            "from": f"{start.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "to": f"{stop.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        }


def _ten(port: int, pages: list[str], subjects: dict[str, dict[str, str]]) -> dict[str, list[float]]:
    def look(number: int) -> list[tuple[str, float]]:
        order = random.Random(number)
        own = order.sample(pages, len(pages))
        time.sleep(order.uniform(0, PAUSE_S))
        seen = []
        for page in own:
            seen.append((page, visit(port, page.partition("/")[0], {**subjects.get(page, {}), "range": "1h"})))
            time.sleep(order.uniform(0, 2 * PAUSE_S))
        return seen

    with ThreadPoolExecutor(VISITORS) as visitors:
        times = defaultdict(list)
        for page, seconds in itertools.chain.from_iterable(visitors.map(look, range(VISITORS))):
            times[page].append(seconds)
    return {page: times[page] for page in pages}


def visit(port: int, page: str, query: dict[str, str]) -> float:
    """Seconds from the connection until the page's script has ended.

    Raises:
        AssertionError: the page shows an error.
    """
    asked = BackMsg()
    asked.rerun_script.query_string = urlencode(query)
    asked.rerun_script.page_name = "" if page == "problems" else page
    began = time.perf_counter()
    address = f"ws://127.0.0.1:{port}/_stcore/stream"
    with connect(address, subprotocols=[Subprotocol("streamlit")], max_size=None, open_timeout=LIMIT_S) as socket:
        socket.send(asked.SerializeToString())
        for message in _messages(socket):
            kind = message.WhichOneof("type")
            if kind == "delta" and message.delta.WhichOneof("type") == "new_element":
                element = message.delta.new_element
                shown = element.WhichOneof("type")
                assert shown != "exception", element.exception.message
                assert shown != "alert" or element.alert.format != element.alert.ERROR, element.alert.body
            if kind == "script_finished":
                assert message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY
                return time.perf_counter() - began
    raise AssertionError(f"the server ended page {page}")


def _messages(socket: Any) -> Iterable[ForwardMsg]:
    while True:
        message = ForwardMsg()
        message.ParseFromString(socket.recv(timeout=LIMIT_S))
        yield message


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
