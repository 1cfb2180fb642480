"""Settings of ``telemetry-lake findings``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from kafka_telemetry_lake.jobs.settings.base import JobSettings, UsageError
from kafka_telemetry_lake.jobs.settings.shared import Time
from kafka_telemetry_lake.udfs.findings.remarks import remark_text

FindingId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Said = Annotated[str, AfterValidator(remark_text)]


class FindingsSettings(JobSettings):
    """Evaluate a lake's findings, and print those that are open. Or say who looks after one; or list the rules."""

    lake: str | None = None
    """folder or URI of the lake; needed except for --list"""
    list_: Annotated[bool, Field(alias="list")] = False
    """list the rules: id, severity, title and the client libraries that each can judge"""
    format: Literal["table", "vertical", "csv", "jsonl"] = "table"
    """output format, as of query; table leaves out some columns"""
    rules: Path | None = None
    """YAML file of other bounds of the findings' rules for some client ids, such as conf/findings.yml"""
    acknowledge: FindingId | None = None
    """id of an open finding that somebody looks after until it is resolved; needs --by and --why"""
    mute: FindingId | None = None
    """id of a finding that shall be quiet until a time; needs --until, --by and --why"""
    unmute: FindingId | None = None
    """id of a muted finding that shall no longer be quiet; needs --by"""
    by: Said | None = None
    """who says so"""
    why: Said | None = None
    """why"""
    until: Time | None = None
    """when a mute ends: a time such as 2026-11-30T08:00Z"""

    def check_together(self) -> None:
        said = [name for name in ("acknowledge", "mute", "unmute") if getattr(self, name) is not None]
        if self.list_:
            if said or self.lake is not None:
                raise UsageError("list: works alone, or with --format")
            return
        if self.lake is None:
            raise UsageError("lake: required; set --lake or TELEMETRY_LAKE_LAKE; only --list works without")
        if len(said) > 1:
            raise UsageError(f"{said[1]}: not together with --{said[0]}: say one thing at a time")
        remark = said[0] if said else None
        needed = {"acknowledge": ("by", "why"), "mute": ("until", "by", "why"), "unmute": ("by",)}.get(remark or "", ())
        for name in ("by", "why", "until"):
            if name in needed and getattr(self, name) is None:
                raise UsageError(f"{name}: required with --{remark}")
            if name not in needed and getattr(self, name) is not None and not (remark and name == "why"):
                raise UsageError(
                    f"{name}: works only with {'--mute' if name == 'until' else '--acknowledge, --mute or --unmute'}"
                )
