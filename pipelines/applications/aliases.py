"""Reads client aliases, the application and owner of each client, and rules for the others, from a CSV or YAML file."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kafka_telemetry_lake.pipelines.applications.rules import CONDITIONS, Rule
from kafka_telemetry_lake.pipelines.runtime.field_problems import field_problems
from kafka_telemetry_lake.udfs.errors import CannotRunError

INSTANCE_ID = r"^[A-Za-z0-9_-]{22}$"
SAID = ("application", "owner", "environment")
COLUMNS = {"aliases": ("client_instance_id", "client_id", *SAID), "rules": (*CONDITIONS, *SAID)}


class AliasError(CannotRunError):
    """An alias or rule is invalid; the message names the file, the key, the value and what is allowed."""


class _Alias(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    client_instance_id: Annotated[str, Field(pattern=INSTANCE_ID)] | None = None
    client_id: Annotated[str, Field(min_length=1)] | None = None
    application: Annotated[str, Field(min_length=1)]
    owner: str | None = None
    environment: str | None = None

    @model_validator(mode="after")
    def _names_one(self) -> _Alias:
        if (self.client_instance_id is None) == (self.client_id is None):
            raise ValueError("allowed: one of client_instance_id and client_id")
        return self


class _AliasesFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    aliases: list[_Alias] = []
    rules: list[Rule] = []

    @model_validator(mode="after")
    def _says_something(self) -> _AliasesFile:
        if not self.model_fields_set:
            raise ValueError("needed: a list aliases, a list rules, or both")
        return self


@dataclass(frozen=True)
class Applications:
    """A file's entries: keys and values of table `client_aliases`, and of table `application_rules`."""

    aliases: list[dict[str, Any]]
    rules: list[dict[str, Any]]


def read_aliases(path: Path) -> Applications:
    """Read a CSV file of aliases with a header line, or the lists `aliases` and `rules` of a YAML file.

    An alias has an `application`, optionally an `owner` and an `environment`, and one of `client_instance_id` and
    `client_id`. A rule has conditions instead (`rules.Rule`); the first one that fits a client counts.

    Raises:
        AliasError: the file is invalid.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = _csv(text) if path.suffix == ".csv" else yaml.safe_load(text)
        read = _AliasesFile.model_validate(content)
    except OSError as error:
        raise AliasError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise AliasError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise AliasError("\n".join(f"{path}: {problem}" for problem in _problems(error))) from None
    return Applications(
        _each_once(path, read.aliases), [rule.row(position) for position, rule in enumerate(read.rules)]
    )


def _each_once(path: Path, aliases: Iterable[_Alias]) -> list[dict[str, Any]]:
    rows: dict[tuple[str | None, str | None], dict[str, Any]] = {}
    for alias in aliases:
        key = (alias.client_instance_id, alias.client_id)
        if key in rows:
            raise AliasError(f"{path}: {key[0] or key[1]!r}: given twice, allowed: each client once")
        rows[key] = alias.model_dump()
    return list(rows.values())


def check_alias(content: Any) -> dict[str, Any]:
    """Check one alias; returns keys and values of table `client_aliases`. Raises ``AliasError``."""
    try:
        return _Alias.model_validate(content).model_dump()
    except ValidationError as error:
        raise AliasError("; ".join(_problems(error))) from None


def _csv(text: str) -> dict[str, Any]:
    """The rows of a CSV file, without empty cells."""
    rows = csv.DictReader(text.splitlines())
    return {"aliases": [{name: value for name, value in row.items() if value} for row in rows]}


def _problems(error: ValidationError) -> list[str]:
    return field_problems(error, "the value", allowed=lambda path: COLUMNS.get(str(path[0]), COLUMNS["aliases"]))
