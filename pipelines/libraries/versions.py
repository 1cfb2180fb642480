"""What is known about client libraries and their versions: ``sql/versions/client_versions.yml``, read and checked."""

from __future__ import annotations

import functools
import re
from datetime import date
from importlib.resources import files
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kafka_telemetry_lake.pipelines.runtime.field_problems import field_problems
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

NAME = "client_versions.yml"
NEVER = "999999.0.0"
"""after all versions"""
UNKNOWN = "unknown"
"""the library of software that no entry fits"""
Text = Annotated[str, Field(min_length=1)]
Version = Annotated[str, Field(pattern=r"^[0-9]+[.][0-9]+[.][0-9]+$")]
Minor = Annotated[str, Field(pattern=r"^[0-9]+[.][0-9]+$")]
Library = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]


class VersionsError(TelemetryLakeError):
    """The file is invalid; the message names the file, the field and what is wrong."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Software(_Model):
    """Names and versions by which clients of a library are recognised; where both are given, both must fit."""

    library: Library
    name: Text | None = None
    """a regular expression for the whole name"""
    within: Text | None = None
    """a regular expression that the version contains, with one group: the library's version"""
    bare: bool = False
    """whether the version is that of the library"""
    minus: int = 0
    """what the major version is greater by than that of the library, whose patch release isn't known then"""
    source: Text

    @model_validator(mode="after")
    def _can_fit(self) -> Software:
        if self.name is None and self.within is None:
            raise ValueError("name: needed, or within")
        if self.bare and self.within is not None:
            raise ValueError("bare: not with within")
        try:
            groups = [re.compile(text or "").groups for text in (self.name, self.within)]
        except re.error as error:
            raise ValueError(f"name or within: not a regular expression: {error}") from None
        if groups != [0, 0 if self.within is None else 1]:
            raise ValueError("groups: none in name, and one in within: the version")
        return self


class Ended(_Model):
    """The release that ended the support of a minor release, and when, if it is known to the day."""

    by: Version
    at: date | None = None


class LibraryVersions(_Model):
    """Support of a library's releases, and the brokers that they work with."""

    latest: Version | None = None
    works_with_brokers_4_from: Version | None = None
    pushes_from: Version | Literal["never"] | None = None
    """the first release that pushes telemetry (KIP-714); None: unknown"""
    source: Text
    supported_from: Version | None = None
    support_source: Text
    ended: dict[Minor, Ended] = {}


class Bug(_Model):
    """A bug, and the versions that have it: from the first one with it to the first one without, if one is known."""

    id: Text
    library: Library
    versions: Annotated[list[Annotated[list[Version], Field(min_length=1, max_length=2)]], Field(min_length=1)]
    affects: Literal["telemetry", "connections", "process", "data", "security"]
    finding: bool | Literal["silent"]
    """whether finding `buggy_client_version` names it; silent: for clients that fell silent"""
    summary: Text
    source: Text

    @model_validator(mode="after")
    def _ranges_rise(self) -> Bug:
        if any(number(first) >= number(fixed) for first, fixed in self.ranges):
            raise ValueError("versions: the first version with the bug must be before the first one without")
        return self

    @property
    def ranges(self) -> list[tuple[str, str]]:
        """The first version with the bug and the first one without, which is `NEVER` if none is known."""
        return [(each[0], each[1] if len(each) > 1 else NEVER) for each in self.versions]


class ClientVersions(_Model):
    """The file."""

    as_of: date
    software: list[Software] = []
    libraries: dict[Library, LibraryVersions]
    bugs: list[Bug]

    @model_validator(mode="after")
    def _libraries_are_known(self) -> ClientVersions:
        named = {each.library for each in self.software} | {each.library for each in self.bugs}
        if strange := named - self.libraries.keys() or {UNKNOWN} & self.libraries.keys():
            raise ValueError(f"libraries: {min(strange)} isn't one of them")
        return self


def number(version: str) -> int:
    """A version as a number that sorts as versions do: 2010001 for 2.10.1."""
    major, minor, patch = map(int, version.split("."))
    return (major * 1000 + minor) * 1000 + patch


def parse_versions(text: str) -> ClientVersions:
    """Read and check the file. Raises ``VersionsError``."""
    try:
        return ClientVersions.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise VersionsError(f"{NAME}: not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise VersionsError("\n".join(f"{NAME}: {problem}" for problem in field_problems(error))) from None


@functools.cache
def versions() -> ClientVersions:
    """The file's content. Raises ``VersionsError``."""
    return parse_versions((files("kafka_telemetry_lake.sql") / "versions" / NAME).read_text("utf-8"))
