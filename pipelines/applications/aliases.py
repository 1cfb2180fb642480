"""Reads client aliases, the application and owner of each client, from a CSV or YAML file."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kafka_telemetry_lake.udfs.errors import CannotRunError

INSTANCE_ID = r"^[A-Za-z0-9_-]{22}$"
COLUMNS = ("client_instance_id", "client_id", "application", "owner")


class AliasError(CannotRunError):
    """An alias is invalid; the message names the file, the key, the value and what is allowed."""


class _Alias(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    client_instance_id: Annotated[str, Field(pattern=INSTANCE_ID)] | None = None
    client_id: Annotated[str, Field(min_length=1)] | None = None
    application: Annotated[str, Field(min_length=1)]
    owner: str | None = None

    @model_validator(mode="after")
    def _names_one(self) -> _Alias:
        if (self.client_instance_id is None) == (self.client_id is None):
            raise ValueError("allowed: one of client_instance_id and client_id")
        return self


class _AliasesFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    aliases: list[_Alias]


def read_aliases(path: Path) -> list[dict[str, Any]]:
    """Read a CSV file with a header line, or the list `aliases` of a YAML file.

    An alias has an `application`, optionally an `owner`, and one of `client_instance_id` and `client_id`.

    Returns:
        Keys and values of table `client_aliases`.

    Raises:
        AliasError: the file is invalid.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = _csv(text) if path.suffix == ".csv" else yaml.safe_load(text)
        aliases = _AliasesFile.model_validate(content).aliases
    except OSError as error:
        raise AliasError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise AliasError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise AliasError("\n".join(f"{path}: {_explain(item)}" for item in error.errors())) from None
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
        raise AliasError("; ".join(_explain(item) for item in error.errors())) from None


def _csv(text: str) -> dict[str, Any]:
    """The rows of a CSV file, without empty cells."""
    rows = csv.DictReader(text.splitlines())
    return {"aliases": [{name: value for name, value in row.items() if value} for row in rows]}


def _explain(item: Any) -> str:
    key = ".".join(str(part) for part in item["loc"]) or "the value"
    if item["type"] == "missing":
        return f"{key}: needed"
    if item["type"] == "extra_forbidden":
        return f"{key}: no such key, allowed: {', '.join(COLUMNS)}"
    if item["type"] == "value_error":
        return f"{key}: {item['ctx']['error']}"
    return f"{key}: {item['msg']}, got {item['input']!r}"
