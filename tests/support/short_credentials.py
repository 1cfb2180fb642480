"""An endpoint that gives out credentials of an object store which expire soon, as EKS Pod Identity and ECS have it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TOKEN = "of-the-pod"  # made up


class ShortCredentials:
    """A running endpoint.

    Args:
        folder: gets the token's file.
        life_s: how long credentials are valid.

    Attributes:
        issued: when each session token expires, as seconds of the epoch.
        refused: session tokens of requests that came after that, or without one ("").
        environment: what a process needs to ask it.
    """

    def __init__(self, folder: Path, life_s: float) -> None:
        self.issued: dict[str, float] = {}
        self.refused: list[str] = []
        self._life_s, self._lock = life_s, threading.Lock()
        endpoint = self

        class Handler(_Handler):
            owner = endpoint

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        file = folder / "token"
        file.write_text(TOKEN)
        self.environment = {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{self._http.server_address[1]}/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(file),
        }

    def issue(self) -> dict[str, str]:
        with self._lock:
            token, expires = f"session-{len(self.issued)}", float(int(time.time() + self._life_s))
            self.issued[token] = expires
        return {
            "AccessKeyId": "test", "SecretAccessKey": "test-secret", "Token": token,
            "Expiration": datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }  # fmt: skip

    def admits(self, token: str) -> bool:
        """Whether a request with this session token is valid now."""
        with self._lock:
            valid = time.time() < self.issued.get(token, 0)
            if not valid:
                self.refused.append(token)
        return valid

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@contextmanager
def short_credentials(folder: Path, life_s: float) -> Iterator[ShortCredentials]:
    """An endpoint, while the block runs."""
    endpoint = ShortCredentials(folder, life_s)
    try:
        yield endpoint
    finally:
        endpoint.stop()


class _Handler(BaseHTTPRequestHandler):
    owner: ShortCredentials

    def do_GET(self) -> None:  # the library's name
        if self.headers.get("Authorization") != TOKEN:
            self.send_error(401)
            return
        body = json.dumps(self.owner.issue()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the tests say what they expect."""
