"""Settings of ``telemetry-lake dashboard``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from kafka_telemetry_lake.jobs.settings.base import JobSettings


class DashboardSettings(JobSettings):
    """Serve dashboard pages over a lake: fleet, findings, producers, consumers, quotas, lifecycle, health, clients."""

    lake: str
    """folder or URI of the lake"""
    host: str = "127.0.0.1"
    """address to listen on; use another address only behind a proxy that authenticates"""
    port: Annotated[int, Field(ge=1, le=65_535)] = 8501
    """port to listen on"""
    rules: Path | None = None
    """YAML file of other bounds of the findings' rules for some client ids, such as conf/findings.yml"""
    allow_changes: bool = False
    """let everybody who can open the pages acknowledge, mute and unmute findings; without it the pages only read"""
    user_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,100}$")] | None = None
    """header in which a proxy names the user that it has authenticated, such as X-Forwarded-User: nothing without it"""
    login_file: Path | None = None
    """TOML file with the section [auth] of Streamlit's login: nothing is shown before a login with OpenID Connect"""
    browser: bool = False
    """open the page in this machine's browser"""

    def check_together(self) -> None:
        if self.user_header and self.login_file:
            raise ValueError("--user-header and --login-file: one of them says who looks")
