"""An HTTP endpoint on this machine that takes POSTs and answers as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Post:
    """A request that an endpoint got; names of headers are in small letters."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Endpoint:
    """Takes POSTs. `answer` returns status, headers and body of each; it may wait, or raise to close the connection."""

    url: str = ""
    posts: list[Post] = field(default_factory=list)
    answer: Callable[[Post], tuple[int, dict[str, str], bytes]] = lambda _: (200, {}, b"")


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    """An endpoint on a free port."""
    taker = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            post = Post(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            taker.posts.append(post)
            status, headers, answer = taker.answer(post)
            with suppress(OSError):  # the sender gave up or was killed
                self.send_response(status)
                for name, value in (headers | {"Content-Length": str(len(answer))}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    taker.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield taker
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
