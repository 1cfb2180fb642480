"""Settings of the jobs: flags, then environment (``TELEMETRY_LAKE_*``), then a YAML file, then defaults; validated."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import (
    BaseSettings,
    CliApp,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from pipelines.object_store import StoreUnavailableError, check_store

ENVIRONMENT_PREFIX = "TELEMETRY_LAKE_"
_conf_file: ContextVar[str | None] = ContextVar("conf_file", default=None)


class UsageError(Exception):
    """The command can't run as asked; the message is for the person who asked."""


class JobSettings(BaseSettings):
    """What all jobs share: how settings are found. Fields' docstrings are the help of the flags."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        extra="forbid",
        use_attribute_docstrings=True,
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        cli_exit_on_error=False,
        hide_input_in_errors=True,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # the signature is the library's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls, yaml_file=_conf_file.get())


SettingsT = TypeVar("SettingsT", bound=JobSettings)


def parse(settings: type[SettingsT], argv: list[str], program: str) -> SettingsT:
    """Read the settings of a command.

    Args:
        argv: flags; ``--conf FILE`` names a YAML file of settings.
        program: the command's name for its help, such as ``telemetry-lake ingest``.

    Raises:
        UsageError: names the key, the value and what is allowed, or says why the lake's store doesn't answer.
        SystemExit: after ``--help``.
    """
    file, argv = _take_conf(argv)
    _conf_file.set(file)
    settings.model_config["cli_prog_name"] = program
    try:
        found = CliApp.run(settings, cli_args=argv)
        check_store(getattr(found, "lake", None) or "")
    except StoreUnavailableError as error:
        raise UsageError(str(error)) from error
    except ValidationError as error:
        raise UsageError("\n".join(_explain(item) for item in error.errors(include_url=False))) from error
    except SettingsError as error:
        raise UsageError(str(error).replace("error parsing CLI: ", "")) from error
    return found


def _take_conf(argv: list[str]) -> tuple[str | None, list[str]]:
    for index, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag == "--conf":
            taken = [value] if equals else argv[index + 1 : index + 2]
            if not taken or not Path(taken[0]).is_file():
                raise UsageError(f"--conf: no such file: {taken[0] if taken else '(nothing given)'}")
            return taken[0], argv[:index] + argv[index + (1 if equals else 2) :]
    return None, argv


def _explain(item: Any) -> str:
    key = ".".join(str(part) for part in item["loc"]) or "settings"
    if item["type"] == "missing":
        return f"{key}: needed, give --{key.replace('_', '-')} or {ENVIRONMENT_PREFIX}{key.upper()}"
    if item["type"] == "extra_forbidden":
        return f"{key}: no such setting"
    secret = any(word in key for word in ("option", "password", "secret", "_key"))
    return f"{key}: {item['msg']}" + ("" if secret else f", got {item['input']!r}")


def fail(message: str, code: int) -> int:
    """Print one error for a person and give the exit code back."""
    print(f"telemetry-lake: {message}", file=sys.stderr)
    return code
