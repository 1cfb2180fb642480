"""Posts JSON and other bytes. Errors never repeat a URL or header, because these may contain a token."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping
from typing import Any

import requests
from pydantic import SecretStr

from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

CONNECT_S, ANSWER_S = 5.0, 10.0
LONGEST_RETRY_AFTER_S = 3600
LONGEST_PAUSE_S = 300
LONGEST_ANSWER = 4096  # bytes of an answer that are read
REFUSED = (400, 413, 415, 422)  # the same message would be refused again


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


def post_json(url: SecretStr, path: str, headers: Mapping[str, SecretStr | str], content: Any) -> None:
    """Post content to a URL, with `path` added to it.

    Raises:
        SinkDownError, RefusedError: anything but an answer of success.
    """
    secret = url.get_secret_value()
    target = secret.rstrip("/") + path if path else secret
    post(target, {"Content-Type": "application/json", **headers}, json.dumps(content).encode(), REFUSED)


def post(url: str, headers: Mapping[str, SecretStr | str], data: bytes, refused: Collection[int]) -> bytes:
    """Post bytes to a URL.

    Args:
        refused: statuses with which the same data would be refused again.

    Returns:
        The beginning of the answer's body.

    Raises:
        SinkDownError, RefusedError: anything but an answer of success.
    """
    plain = {name: value if isinstance(value, str) else value.get_secret_value() for name, value in headers.items()}
    try:
        with requests.post(
            url,
            data=data,
            headers={"User-Agent": "kafka-telemetry-lake"} | plain,
            timeout=(CONNECT_S, ANSWER_S),
            allow_redirects=False,  # the message would go to another place, and a POST become a GET
            stream=True,  # the answer's body isn't needed, however long it is
        ) as answer:
            status, retry_after = answer.status_code, answer.headers.get("Retry-After", "")
            beginning: bytes = next(answer.iter_content(LONGEST_ANSWER), b"")
    except requests.exceptions.SSLError:
        raise SinkDownError("TLS fails: its certificate isn't trusted, or it doesn't speak TLS") from None
    except requests.ReadTimeout:
        raise SinkDownError(f"no answer within {ANSWER_S:.0f} s") from None
    except requests.ConnectionError:
        raise SinkDownError("it can't be reached") from None
    except Exception as error:
        raise SinkDownError(f"the request fails with {type(error).__name__}") from None
    if 200 <= status < 300:
        return beginning
    if status in refused:
        raise RefusedError(f"it refuses the message with HTTP {status}")
    if 300 <= status < 400:
        raise SinkDownError(f"it answers with a redirect (HTTP {status}); set the URL that it leads to")
    seconds = int(retry_after) if retry_after.isascii() and retry_after.isdecimal() else 0
    raise SinkDownError(f"it answers with HTTP {status}", min(seconds, LONGEST_RETRY_AFTER_S))


def pause_after(failures: int, error: Exception) -> float:
    """Seconds before the next attempt: doubled with each failure, and not the same for all sinks and processes."""
    doubled = min(2.0 ** min(failures - 1, 16), LONGEST_PAUSE_S) * random.uniform(0.5, 1)
    return max(doubled, error.retry_after if isinstance(error, SinkDownError) else 0)
