"""Posts JSON and other bytes. Errors never repeat a URL or header, because these may contain a token."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import requests
from pydantic import SecretStr

from kafka_telemetry_lake.pipelines.runtime.http_session import http_session
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

CONNECT_S, ANSWER_S = 5.0, 10.0
LONGEST_RETRY_AFTER_S = 3600
LONGEST_ANSWER = 1 << 16  # bytes of an answer that are read
REFUSED = (400, 413, 415, 422)  # the same message would be refused again
PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
HTML = ("text/html", "application/xhtml+xml")
ELEMENT = re.compile(rb"(?:\xef\xbb\xbf)?\s*<[a-z!?]", re.IGNORECASE)


class SinkDownError(TelemetryLakeError):
    """A sink didn't take a message, and may do so later.

    Attributes:
        retry_after: seconds that the sink asks to wait.
    """

    def __init__(self, message: str, retry_after: int = 0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RefusedError(TelemetryLakeError):
    """A sink refuses this message and would refuse it again."""


@dataclass(frozen=True)
class Answer:
    """An answer with a status of success, which alone acknowledges nothing: a website has it for each path.

    Attributes:
        content_type: in small letters, without parameters; empty: not stated.
        body: its first `LONGEST_ANSWER` bytes.
    """

    status: int
    content_type: str
    body: bytes


def post_json(
    url: SecretStr,
    path: str,
    headers: Mapping[str, SecretStr | str],
    content: Any,
    check: Callable[[Answer], object] = lambda _: None,
) -> None:
    """Post content to a URL, with `path` added to its path.

    Args:
        check: raises ``SinkDownError`` for an answer that isn't the sink's.

    Raises:
        SinkDownError, RefusedError: anything but an answer of success.
    """
    target = below(url.get_secret_value(), path)
    check(post(target, {"Content-Type": "application/json", **headers}, json.dumps(content).encode(), REFUSED))


def below(url: str, path: str) -> str:
    """A URL with `path` added to its path; the same URL for an empty one."""
    if not path:
        return url
    parts = urlsplit(url)
    return parts._replace(path=parts.path.rstrip("/") + path, fragment="").geturl()


def post(url: str, headers: Mapping[str, SecretStr | str], data: bytes, refused: Collection[int]) -> Answer:
    """Post bytes to a URL.

    Args:
        refused: statuses with which the same data would be refused again.

    Raises:
        SinkDownError: anything but an answer of success, or one with a page of HTML.
        RefusedError: one of `refused`.
    """
    plain = {name: value if isinstance(value, str) else value.get_secret_value() for name, value in headers.items()}
    try:
        with (
            http_session() as session,
            session.post(
                url,
                data=data,
                headers={"User-Agent": "kafka-telemetry-lake"} | plain,
                timeout=(CONNECT_S, ANSWER_S),
                allow_redirects=False,  # the message would go to another place, and a POST become a GET
                stream=True,  # the answer's body isn't needed, however long it is
            ) as response,
        ):
            status, said = response.status_code, response.headers
            body = _beginning(response) if 200 <= status < 300 else b""
    except requests.exceptions.SSLError:
        raise SinkDownError("TLS fails: its certificate isn't trusted, or it doesn't speak TLS") from None
    except requests.exceptions.ProxyError:
        where = "the proxy that the environment names (HTTP_PROXY or the like) can't be reached, or refuses"
        raise SinkDownError(f"{where}; NO_PROXY names hosts without one") from None
    except requests.ReadTimeout:
        raise SinkDownError(f"no answer within {ANSWER_S:.0f} s") from None
    except requests.ConnectionError:
        raise SinkDownError("it can't be reached") from None
    except Exception as error:
        bundle = str(error) if type(error) is OSError and "CA certificate bundle" in str(error) else ""
        raise SinkDownError(f"the request fails with {bundle or type(error).__name__}") from None
    if 200 <= status < 300:
        kind = said.get("Content-Type", "").partition(";")[0].strip().lower()
        if PAGE.match(body) or (kind in HTML and ELEMENT.match(body)):
            raise SinkDownError(
                f"it answers HTTP {status} with a page of HTML, as a website or a login does: is its URL right?"
            )
        return Answer(status, kind, body)
    if status in refused:
        raise RefusedError(f"it refuses the message with HTTP {status}")
    if 300 <= status < 400:
        raise SinkDownError(f"it answers with a redirect (HTTP {status}); set the URL that it leads to")
    raise SinkDownError(f"it answers with HTTP {status}", _seconds(said.get("Retry-After", "")))


def _beginning(response: requests.Response) -> bytes:
    deadline, body = time.monotonic() + ANSWER_S, bytearray()
    for byte in response.iter_content(1):  # more at once would be waited for, and each byte may take `ANSWER_S`
        body += byte
        if time.monotonic() > deadline:
            raise requests.ReadTimeout
        if len(body) >= LONGEST_ANSWER:
            break
    return bytes(body[:LONGEST_ANSWER])


def _seconds(retry_after: str) -> int:
    """The seconds of a header Retry-After, which has a number of seconds or a date (RFC 9110, section 10.2.3)."""
    try:
        if retry_after.isascii() and retry_after.isdecimal():
            seconds = int(retry_after[:10])
        else:
            at = parsedate_to_datetime(retry_after)
            seconds = int((at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError, OverflowError):
        return 0
    return min(max(seconds, 0), LONGEST_RETRY_AFTER_S)
