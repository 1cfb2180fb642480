"""Reads and validates settings: flags, then ``TELEMETRY_LAKE_*`` variables, then a YAML file, then defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    CliApp,
    CliPositionalArg,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from kafka_telemetry_lake.pipelines.lake.place import check_place, check_uri, plain
from kafka_telemetry_lake.udfs.errors import CannotRunError
from kafka_telemetry_lake.udfs.nearest import did_you_mean

ENVIRONMENT_PREFIX = "TELEMETRY_LAKE_"
PLACES_BESIDE = ("checkpoints", "to")  # settings that name a folder or URI beside the lake
POSITIONAL = get_args(CliPositionalArg[str])[1]
_conf_file: ContextVar[str | None] = ContextVar("conf_file", default=None)


class UsageError(CannotRunError):
    """A setting is wrong, or conflicts with another setting or with the lake."""


class JobSettings(BaseSettings):
    """Base of all settings classes. The docstrings of fields are the help texts of their flags."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        env_prefix_target="all",  # also of fields with an alias
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
    def __pydantic_init_subclass__(cls, **_kwargs: object) -> None:
        """A command's own settings come before inherited ones in its help."""
        fields = sorted(cls.model_fields.items(), key=lambda item: item[0] not in cls.__annotations__)
        cls.model_fields.clear()
        cls.model_fields.update(fields)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # the signature is the library's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # the same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls, yaml_file=_conf_file.get())

    def check_together(self) -> None:
        """Raise ``UsageError`` for settings that are valid one by one, but not together."""


SettingsT = TypeVar("SettingsT", bound=JobSettings)


def parse(settings: type[SettingsT], argv: list[str], program: str) -> SettingsT:
    """Read the settings of a command.

    Args:
        argv: flags; ``--conf FILE`` names a YAML file of settings.
        program: the command's name in its help, such as ``telemetry-lake ingest``.

    Raises:
        UsageError: names the setting, its value and the allowed values.
        PlaceError, StoreUnavailableError: there can't be a lake where the settings place it.
        SystemExit: after ``--help``.
    """
    file, argv = _take_conf(argv)
    _conf_file.set(file)
    settings.model_config["cli_prog_name"] = program
    try:
        parsed = CliApp.run(settings, cli_args=argv)
    except ValidationError as error:
        known = settings.model_fields
        raise UsageError("\n".join(_explain(item, known) for item in error.errors(include_url=False))) from error
    except SettingsError as error:
        raise UsageError(_of_command_line(str(error), argv, flags_of(settings))) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"--conf: {file} is not YAML: {' '.join(str(error).split())}") from error
    except (OSError, TypeError, ValueError) as error:
        if file is None:
            raise
        raise UsageError(f"--conf: {file} can't be read as a list of `setting: value`: {error}") from error
    _check_places(parsed)
    return parsed


def _check_places(parsed: JobSettings) -> None:
    """Raise an error for a place where nothing can be, before anything is asked."""
    for name in parsed.__class__.model_fields:
        value = getattr(parsed, name)
        if isinstance(value, Path) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(value)):  # a Path has one slash less
            raise UsageError(f"{name}: {value} is a URI; allowed: a file or folder of this machine")
    source = getattr(parsed, "source", "")
    if source.startswith("files:") and "://" in source:
        raise UsageError(f"source: {source} is a URI; allowed after files: a folder of this machine")
    for name in (*PLACES_BESIDE, "lake"):
        place = getattr(parsed, name, None)
        if place is not None:
            check_uri(place, name)
            setattr(parsed, name, plain(place))
    lake = getattr(parsed, "lake", None)
    if lake is not None:
        check_place(lake)


def flags_of(settings: type[JobSettings]) -> list[str]:
    """The flags of a command, those that switch something off included."""
    return ["--help", "--conf", *fields_by_flag(settings)]


def fields_by_flag(settings: type[JobSettings]) -> dict[str, FieldInfo]:
    """The field that each flag sets."""
    fields = {}
    for name, field in settings.model_fields.items():
        if POSITIONAL in field.metadata:
            continue
        flag = (field.alias or name).replace("_", "-")
        fields[f"--{flag}"] = field
        if field.annotation is bool:
            fields[f"--no-{flag}"] = field
    return fields


def secret_text(secret: SecretStr | None) -> str:
    """The text of a secret; empty if it isn't set."""
    return "" if secret is None else secret.get_secret_value()


def _take_conf(argv: list[str]) -> tuple[str | None, list[str]]:
    for index, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag == "--conf":
            taken = [value] if equals else argv[index + 1 : index + 2]
            if not taken or not Path(taken[0]).is_file():
                raise UsageError(f"--conf: no such file: {taken[0] if taken else '(no file given)'}")
            return taken[0], argv[:index] + argv[index + (1 if equals else 2) :]
    return None, argv


def _of_command_line(message: str, argv: Sequence[str], flags: Sequence[str]) -> str:
    """What is wrong with the command line. It doesn't repeat values, which may be long (SQL) or secret."""
    message = message.replace("error parsing CLI: ", "")
    if match := re.match(r"Parsing error encountered for (\w+): not enough values to unpack", message):
        flag = f"--{match[1].replace('_', '-')}"
        return f"{match[1]}: allowed: NAME=VALUE, such as {flag} NAME=VALUE"
    if not message.startswith("unrecognized arguments: "):
        return message
    unknown = [word.partition("=")[0] for word in argv if word.startswith("-") and len(word) > 1]
    unknown = [flag for flag in unknown if flag not in flags and not flag.lstrip("-").isdigit()]
    if "--catalog" in unknown:
        return (
            "catalog: this command reads and writes tables by path, in a folder or at a URI; a catalog's tables "
            "are asked by SQL in its own engine (docs/engines.md says which commands take --catalog)"
        )
    if unknown:
        return f"unrecognized arguments: {', '.join(unknown)}{did_you_mean(unknown[0], flags, 1)}"
    first = message.removeprefix("unrecognized arguments: ").split()[0]
    return f"unrecognized arguments: {first} and what follows; put a text with spaces in quotes"


def _explain(item: Any, known: Mapping[str, FieldInfo]) -> str:
    key = ".".join(str(part) for part in item["loc"]) or "settings"
    if item["type"] == "missing":
        return f"{key}: required; set --{key.replace('_', '-')} or {ENVIRONMENT_PREFIX}{key.upper()}"
    if item["type"] == "extra_forbidden":
        return f"{key}: unknown setting{did_you_mean(key, known)}"
    field = known.get(str(item["loc"][0])) if item["loc"] else None
    secret = any(word in key for word in ("option", "header", "password", "secret", "_key")) or (
        field is not None and "SecretStr" in repr(field.annotation)
    )
    return f"{key}: {item['msg']}" + ("" if secret else f", got {item['input']!r}")
