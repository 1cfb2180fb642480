"""``telemetry-lake dashboard``: pages in the browser over a lake. Reads only; needs no Spark.

Exit codes: 0 stopped, 2 can't run as asked.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import Field

from jobs.settings import ENVIRONMENT_PREFIX, JobSettings, UsageError, fail, parse


class DashboardSettings(JobSettings):
    """Show a lake in the browser: fleet, producers, consumers, quotas, lifecycle, the pipeline's health, one client."""

    lake: str
    """folder or URI of the lake"""
    host: str = "127.0.0.1"
    """address to listen at; pages have no login, so put a proxy with one before any other address"""
    port: Annotated[int, Field(ge=1, le=65_535)] = 8501
    """port to listen at"""
    browser: bool = False
    """open the page in a browser of this machine"""


def main(argv: list[str] | None = None) -> int:
    """Serve the pages until stopped; `argv` without the program's name. Gives the exit code."""
    try:
        settings = parse(DashboardSettings, sys.argv[1:] if argv is None else argv, "telemetry-lake dashboard")
    except UsageError as error:
        return fail(str(error), 2)
    problem = _problem(settings)
    if problem is not None:
        return fail(problem, 2)
    return _serve(settings)


def _serve(settings: DashboardSettings) -> int:
    # Loaded before the first visitor comes, in the process that serves them.
    import pandas  # noqa: F401, PLC0415
    from streamlit.web import cli  # noqa: PLC0415

    import dashboards.lake  # noqa: PLC0415

    os.environ[f"{ENVIRONMENT_PREFIX}LAKE"] = settings.lake
    print(f"telemetry-lake: http://{_shown(settings.host)}:{settings.port} shows {settings.lake}", flush=True)
    flags = {
        "server.address": settings.host,
        "server.port": settings.port,
        "server.headless": not settings.browser,
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "logger.level": "error",
    }
    options = [f"--{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in flags.items()]
    page = str(Path(dashboards.__file__).parent / "app.py")
    cli.main(["run", page, *options], prog_name="telemetry-lake dashboard", standalone_mode=False)
    return 0


def _problem(settings: DashboardSettings) -> str | None:
    """Why it can't be served, and what to do."""
    if find_spec("streamlit") is None:
        return "the dashboard needs Streamlit: pip install 'kafka-telemetry-lake[dashboard]'"
    from pipelines.lake_query import is_lake  # noqa: PLC0415  # Arrow loads after the flags were found right

    if not is_lake(settings.lake):
        return f"no lake at {settings.lake}: make one with `telemetry-lake demo` or `telemetry-lake ingest`"
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, settings.port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"port {settings.port} is taken: give another with --port, or stop what listens there"
        return f"can't listen at {settings.host}:{settings.port}: {error.strerror or error}"
    return None


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


if __name__ == "__main__":
    sys.exit(main())
