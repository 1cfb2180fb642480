"""Reads the file of ``telemetry-lake notify``: sinks, and which changes each of them gets."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import apprise
import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from kafka_telemetry_lake.udfs.errors import CannotRunError

# These libraries log the URLs that they use, at level DEBUG or when reading or sending to one fails.
TALKATIVE = ("apprise", "oauthlib", "requests_oauthlib", "urllib3")
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
SINK_NAME = r"^[a-z0-9][a-z0-9_-]{0,62}$"  # also the name of its file in the lake

Texts = Annotated[list[str], Field(min_length=1)]


class NotifyFileError(CannotRunError):
    """The file is invalid; the message names the field. It never repeats what a sink's fields contain."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Match(_Entry):
    """Patterns for columns of a change, `*` and `?` as in file names. An empty text stands for NULL."""

    finding: Texts = Field(default_factory=list)
    severity: Texts = Field(default_factory=list)
    cluster_id: Texts = Field(default_factory=list)
    scope: Texts = Field(default_factory=list)
    subject: Texts = Field(default_factory=list)
    client_id: Texts = Field(default_factory=list)
    principal: Texts = Field(default_factory=list)
    application: Texts = Field(default_factory=list)
    owner: Texts = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _lists(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        return {key: [value] if isinstance(value, str) else value for key, value in content.items()}

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Whether a row with these columns has a fitting text in each one that has patterns."""
        return all(
            any(fnmatchcase(row[column] or "", pattern) for pattern in patterns)
            for column, patterns in self
            if patterns
        )


class _Sink(_Entry):
    match: Match = Field(default_factory=Match)


class _HttpSink(_Sink):
    url: SecretStr
    headers: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")], SecretStr] = Field(default_factory=dict)

    @field_validator("url")
    @classmethod
    def _url(cls, url: SecretStr) -> SecretStr:
        try:
            parts = urlsplit(url.get_secret_value())
            fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            fits = False
        if not fits or not url.get_secret_value().isprintable():
            raise ValueError("allowed: a URL that begins with http:// or https:// and names a host")
        return url

    @field_validator("headers")
    @classmethod
    def _headers(cls, headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, value in headers.items():
            text = value.get_secret_value()
            if not (text.isascii() and text.isprintable() and text == text.strip()):
                raise ValueError(f"{name}: allowed: printable ASCII without outer spaces")
        return headers


class AlertmanagerSink(_HttpSink):
    """An Alertmanager, or one of a cluster: a sink for each."""

    type: Literal["alertmanager"]
    resend_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    expire_seconds: Annotated[int, Field(ge=2, le=86_400)] = 300

    @field_validator("url")
    @classmethod
    def _base(cls, url: SecretStr) -> SecretStr:
        if found := re.search(r"/api/v[12](?:/alerts)?/?$", urlsplit(url.get_secret_value()).path):
            raise ValueError(f"leave {found[0]} out: the path is added")
        return url

    @model_validator(mode="after")
    def _expires_later(self) -> AlertmanagerSink:
        if self.expire_seconds < 2 * self.resend_seconds:
            raise ValueError("expire_seconds must be at least twice resend_seconds, or open alerts end in between")
        return self


class WebhookSink(_HttpSink):
    """A URL to which messages are posted as JSON."""

    type: Literal["webhook"]
    per_minute: Annotated[int, Field(ge=1, le=600)] = 60


class AppriseSink(_Sink):
    """A target of the library apprise: Slack, mail, PagerDuty and others."""

    type: Literal["apprise"]
    url: SecretStr
    per_minute: Annotated[int, Field(ge=1, le=600)] = 10

    @field_validator("url")
    @classmethod
    def _url(cls, url: SecretStr) -> SecretStr:
        if not (target := apprise.Apprise()).add(url.get_secret_value()) or len(target) != 1:
            raise ValueError("apprise doesn't know such a URL; allowed: one URL of its documentation")
        return url


KINDS = (AlertmanagerSink, WebhookSink, AppriseSink)
Sink = Annotated[AlertmanagerSink | WebhookSink | AppriseSink, Field(discriminator="type")]


class NotifyFile(_Entry):
    """The whole file."""

    sinks: Annotated[dict[Annotated[str, Field(pattern=SINK_NAME)], Sink], Field(min_length=1)]


def read_notify_file(path: Path) -> NotifyFile:
    """Read the sinks. `${NAME}` in a sink's texts is replaced by that environment variable.

    From then on the libraries that would log URLs of sinks log nothing.

    Raises:
        NotifyFileError: the file is invalid.
    """
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and "sinks" in content:
            content["sinks"] = _with_variables(content["sinks"], "sinks")
        return NotifyFile.model_validate(content)
    except OSError as error:
        raise NotifyFileError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise NotifyFileError("\n".join(f"{path}: {_explain(item)}" for item in error.errors())) from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or a day that no month has
        raise NotifyFileError(f"{path}: not YAML{_where(error)}") from None
    except (NotifyFileError, RecursionError) as error:
        raise NotifyFileError(f"{path}: {error}") from None


def _with_variables(content: Any, field: str) -> Any:
    if isinstance(content, dict):
        return {key: _with_variables(value, f"{field}.{key}") for key, value in content.items()}
    if not isinstance(content, str):
        return content
    missing = [name for name in VARIABLE.findall(content) if name not in os.environ]
    if missing:
        raise NotifyFileError(f"{field}: environment variable {missing[0]} isn't set")
    return VARIABLE.sub(lambda found: os.environ[found[1]], content)


def _where(error: Exception) -> str:
    """The line of a YAML error. Its text may quote a URL."""
    mark = getattr(error, "problem_mark", None)
    return "" if mark is None else f": line {mark.line + 1}, column {mark.column + 1}"


def _explain(item: Any) -> str:
    kinds = [get_args(kind.model_fields["type"].annotation)[0] for kind in KINDS]
    place = [str(part) for part in item["loc"]]
    in_sink = place[:1] == ["sinks"]
    if in_sink and len(place) > 2 and place[2] in kinds:
        del place[2]  # pydantic names the union's member
    key = ".".join(place) or "the file"
    match item["type"]:
        case "missing":
            return f"{key}: needed"
        case "extra_forbidden":
            return f"{key}: no such field"
        case "union_tag_not_found" | "union_tag_invalid":
            return f"{key}.type: allowed: {', '.join(kinds)}"
        case "value_error":
            said = str(item["ctx"]["error"])
            return said if not place else f"{key}: {said}"
        case _:
            return f"{key}: {item['msg']}" + ("" if in_sink else f", got {str(item['input'])[:80]!r}")
