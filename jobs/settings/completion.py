"""Settings of ``telemetry-lake completion``."""

from __future__ import annotations

from typing import Literal

from pydantic_settings import CliPositionalArg

from kafka_telemetry_lake.jobs.settings.base import JobSettings


class CompletionSettings(JobSettings):
    """Print a script for a shell: eval "$(telemetry-lake completion bash)" in ~/.bashrc, the same with zsh in ~/.zshrc
    after compinit, or telemetry-lake completion fish > ~/.config/fish/completions/telemetry-lake.fish"""

    shell: CliPositionalArg[Literal["bash", "zsh", "fish"]]
    """the shell that completes"""
