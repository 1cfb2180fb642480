"""Reads client aliases, the application and owner of each client, and rules for the others, from a CSV or YAML file.

A rule compares a client's id, principal, consumer group and address; view `clients` applies it.
"""

from __future__ import annotations

import csv
import ipaddress
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import duckdb
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kafka_telemetry_lake.pipelines.runtime.field_problems import field_problems, read_yaml
from kafka_telemetry_lake.udfs.errors import CannotRunError

Text = Annotated[str, Field(min_length=1)]
PATTERNS = ("client_id", "principal", "group_id")
CONDITIONS = (*PATTERNS, "address_range")
# Java's expressions, which Spark uses, read these otherwise than RE2's, which DuckDB uses.
ONLY_SOME = re.compile(r"\(\?P|\{,")


class Rule(BaseModel):
    """Conditions of which all must hold, and what they say about the client."""

    model_config = ConfigDict(extra="forbid", strict=True)

    client_id: Text | None = None
    principal: Text | None = None
    group_id: Text | None = None
    address_range: Text | None = None
    application: Text
    owner: Text | None = None
    environment: Text | None = None

    @model_validator(mode="after")
    def _can_be_applied(self) -> Rule:
        given = {name: text for name in CONDITIONS if (text := getattr(self, name)) is not None}
        if not given:
            raise ValueError(f"needed: at least one of {', '.join(CONDITIONS)}")
        for name in given.keys() & set(PATTERNS):
            if problem := problem_of_pattern(given[name]):
                raise ValueError(f"{name} is no regular expression that every engine reads alike: {problem}")
        if self.address_range is not None:
            try:
                ipaddress.ip_network(self.address_range)
            except ValueError as error:
                raise ValueError(f"address_range is no address range such as 10.1.0.0/16: {error}") from None
        return self

    def row(self, position: int) -> dict[str, Any]:
        """Keys and values of table `application_rules`."""
        first = last = None
        if self.address_range is not None:
            network = ipaddress.ip_network(self.address_range)
            first, last = comparable(network[0]), comparable(network[-1])
        return {"position": position, **self.model_dump(), "address_first": first, "address_last": last}


def comparable(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """An address as a text that sorts as addresses do: view `clients` makes the same of a client's address.

    IPv4: its numbers with three digits each. IPv6: its 32 hex digits.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return "".join(f"{number:03}" for number in address.packed)
    return address.packed.hex()


def problem_of_pattern(pattern: str) -> str | None:
    """Why DuckDB and Spark wouldn't both take a regular expression, or read it differently; None: they would."""
    if found := ONLY_SOME.search(pattern):
        return f"{found[0]!r} means something else, or nothing, in Java"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of sets in sets, which Java reads otherwise
            re.compile(pattern)
        duckdb.execute("SELECT regexp_matches('', ?)", [pattern]).fetchall()
    except (re.error, duckdb.Error, Warning) as error:
        return " ".join(str(error).split())
    return None


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
    `client_id`. A rule has conditions instead (`Rule`); the first one that fits a client counts.

    Raises:
        AliasError: the file is invalid.
    """
    content = read_yaml(path, AliasError, _csv if path.suffix == ".csv" else yaml.safe_load)
    try:
        read = _AliasesFile.model_validate(content)
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
