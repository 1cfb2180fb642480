"""``telemetry-lake dashboard``: serves dashboard pages over a lake, read-only unless allowed more; needs no Spark."""

from __future__ import annotations

import errno
import os
import socket
import tomllib
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import pandas  # noqa: F401  # slow to import: loaded before the first request
from click import ClickException
from streamlit.web import cli

from kafka_telemetry_lake.dashboards.prepare import begin_to_prepare
from kafka_telemetry_lake.jobs.settings.base import ENVIRONMENT_PREFIX, UsageError
from kafka_telemetry_lake.jobs.settings.dashboard import DashboardSettings
from kafka_telemetry_lake.jobs.support.signals import end_soon_after_a_signal
from kafka_telemetry_lake.pipelines.findings.overrides import read_overrides
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake

LOGIN_KEYS = ("redirect_uri", "cookie_secret", "client_id", "client_secret", "server_metadata_url")


def run_job(settings: DashboardSettings) -> int:
    """Serve the pages until stopped."""
    _check(settings)
    os.environ[f"{ENVIRONMENT_PREFIX}LAKE"] = settings.lake
    os.environ[f"{ENVIRONMENT_PREFIX}RULES"] = str(settings.rules or "")
    os.environ[f"{ENVIRONMENT_PREFIX}ALLOW_CHANGES"] = str(int(settings.allow_changes))
    os.environ[f"{ENVIRONMENT_PREFIX}USER_HEADER"] = settings.user_header or ""
    os.environ[f"{ENVIRONMENT_PREFIX}LOGIN"] = str(int(settings.login_file is not None))
    changes = "; who opens it may acknowledge and mute findings" if settings.allow_changes else ""
    print(f"telemetry-lake: http://{_shown(settings.host)}:{settings.port} serves {settings.lake}{changes}", flush=True)
    flags: dict[str, object] = {
        "server.address": settings.host,
        "server.port": settings.port,
        "server.headless": not settings.browser,
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": False,
        "global.developmentMode": False,  # with it, a port can't be chosen
        "theme.light.primaryColor": "#0072B2",
        "theme.dark.primaryColor": "#56B4E9",
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "logger.level": "error",
    }
    if settings.login_file is not None:
        flags["secrets.files"] = str(settings.login_file)
    options = [f"--{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in flags.items()]
    begin_to_prepare(settings.lake)
    # A browser that stalls in a download would delay the server's end forever.
    end_soon_after_a_signal("stopped while a browser was still connected")
    serve(options)
    return 0


def serve(options: list[str]) -> None:
    """Run Streamlit, which reads other options from ``STREAMLIT_*``; a wrong one there is a ``UsageError``."""
    page = str(files("kafka_telemetry_lake.dashboards") / "app.py")
    try:
        cli.main(["run", page, *options], prog_name="telemetry-lake dashboard", standalone_mode=False)
    except ClickException as error:
        raise UsageError(f"Streamlit's options: {' '.join(error.format_message().split())}") from error


def _check(settings: DashboardSettings) -> None:
    """Raise ``UsageError`` with advice when there is no lake, or when the address can't be bound; check the rules."""
    read_overrides(settings.rules)
    if settings.login_file is not None:
        _check_login(settings.login_file)
    if not is_lake(settings.lake):
        raise UsageError(f"no lake at {settings.lake}: create one with `telemetry-lake demo` or `... ingest`")
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, settings.port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            advice = "choose another with --port, or stop the process that listens on it"
            raise UsageError(f"port {settings.port} is in use: {advice}") from error
        raise UsageError(f"can't listen on {settings.host}:{settings.port}: {error.strerror or error}") from error


def _check_login(file: Path) -> None:
    """Raise ``UsageError`` if the file isn't one of Streamlit's login, or Authlib isn't there."""
    try:
        auth = tomllib.loads(file.read_text("utf-8")).get("auth", {})
    except (OSError, ValueError) as error:
        raise UsageError(f"--login-file {file} can't be read: {error}") from error
    missing = [name for name in LOGIN_KEYS if not auth.get(name)]
    if missing:
        raise UsageError(f"--login-file {file} lacks in its section [auth]: {', '.join(missing)}")
    if find_spec("authlib") is None:
        raise UsageError("--login-file needs Authlib: pip install 'kafka-telemetry-lake[dashboard]'")


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
