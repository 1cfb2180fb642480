"""A proxy in front of an S3 server that lets chosen requests fail as stores and networks do."""

from __future__ import annotations

import http.client
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from kafka_telemetry_lake.sandbox.patience import PATIENCE_S

ERROR = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'
HOP_BY_HOP = {"connection", "expect", "keep-alive", "transfer-encoding", "content-length"}


class Fault(Enum):
    """What happens to a request."""

    UNAVAILABLE = "503 Slow Down"
    EXPIRED = "403, the token has expired"
    SLOW = "it takes a while to arrive"
    CUT = "the connection ends in the middle of its body"
    ANSWER_LOST = "the server carries it out, and the connection ends before the answer"
    OLD_ANSWER = "the answer is that of an earlier request of the same address"
    SILENT = "nobody answers until the store recovers, as over a network that is cut"
    UNCONDITIONAL = "its condition is ignored, as by a server that doesn't know If-None-Match"
    LOSES_CREATES = (
        "If-None-Match is ignored while a request for the same address is under way: looked first, written later"
    )
    LOSES_UPDATES = "the same of If-Match"
    NO_UPDATES = "501 to If-Match, as by a server that doesn't know it"


IGNORED = {
    Fault.UNCONDITIONAL: "if-none-match",
    Fault.LOSES_CREATES: "if-none-match",
    Fault.LOSES_UPDATES: "if-match",
}


@dataclass
class Strike:
    """A fault of the next requests with a method, for an address that matches.

    Attributes:
        method: regular expression for all of it.
        address: regular expression, found anywhere in path and query.
        times: how many requests; those that were struck are in `struck`.
        began: set when the first one has arrived.
        goes_on: lets slow ones go on before their time.
    """

    fault: Fault
    method: str
    address: str
    times: int = 1
    seconds: float = 1.0  # of a slow one, at most
    struck: list[str] = field(default_factory=list)
    began: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)


class S3Proxy:
    """A running proxy.

    Args:
        endpoint: the server.
        host: address of this machine, where it listens.
    """

    def __init__(self, endpoint: str, host: str = "127.0.0.1") -> None:
        self.server = cast("Any", urlsplit(endpoint))
        self.strikes: list[Strike] = []
        self.answers: dict[str, tuple[int, list[tuple[str, str]], bytes]] = {}
        self.admits: Callable[[str], bool] = lambda _: True  # a request, by its session token
        self.under_way: Counter[str] = Counter()  # requests of an address
        self.lock = threading.Lock()
        self.recovered = threading.Event()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._http = _Server((host, 0), Handler)
        self.endpoint = f"http://{host}:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def strike(self, fault: Fault, method: str, address: str, times: int = 1, seconds: float = 1.0) -> Strike:
        """Let a fault happen to the next such requests."""
        strike = Strike(fault, method, address, times, seconds)
        with self.lock:
            self.strikes.append(strike)
        return strike

    def recover(self) -> None:
        """No request fails any more."""
        with self.lock:
            self.strikes.clear()
            self.recovered.set()
            self.recovered = threading.Event()

    def strike_of(self, method: str, address: str) -> Strike | None:
        """What strikes a request that has just arrived."""
        address = unquote(address)
        with self.lock:
            for strike in self.strikes:
                is_due = len(strike.struck) < strike.times and re.fullmatch(strike.method, method)
                if is_due and re.search(strike.address, address):
                    strike.struck.append(address)
                    strike.began.set()
                    return strike
        return None

    def stop(self) -> None:
        self.recover()
        self._http.shutdown()
        self._http.server_close()


@contextmanager
def proxied(endpoint: str, host: str = "127.0.0.1") -> Iterator[S3Proxy]:
    """A proxy before the server at an endpoint."""
    proxy = S3Proxy(endpoint, host)
    try:
        yield proxy
    finally:
        proxy.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Nothing: a client that gave up has hung up."""


class _Handler(BaseHTTPRequestHandler):
    owner: S3Proxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _pass(self) -> None:
        strike = self.owner.strike_of(self.command, self.path)
        body = self._body()
        with self.owner.lock:
            self.owner.under_way[self.path] += 1
        try:
            self._pass_on(strike, body)
        finally:
            with self.owner.lock:
                self.owner.under_way[self.path] -= 1

    def _pass_on(self, strike: Strike | None, body: bytes) -> None:
        fault = None if strike is None else strike.fault
        if not self.owner.admits(self.headers.get("x-amz-security-token", "")):
            fault = Fault.EXPIRED
        if fault in (Fault.UNAVAILABLE, Fault.EXPIRED):
            status, code = (503, "SlowDown") if fault is Fault.UNAVAILABLE else (403, "ExpiredToken")
            self._answer(status, [("Content-Type", "application/xml")], ERROR.format(code=code).encode())
            return
        if fault is Fault.NO_UPDATES and "If-Match" in self.headers:
            self._answer(501, [("Content-Type", "application/xml")], ERROR.format(code="NotImplemented").encode())
            return
        if fault is Fault.SILENT:
            self.owner.recovered.wait()
            self._hang_up()
            return
        if strike is not None and fault is Fault.SLOW:
            strike.goes_on.wait(strike.seconds)
        if fault is Fault.OLD_ANSWER and (old := self.owner.answers.get(self.path)) is not None:
            self._answer(*old)
            return
        is_alone = self.owner.under_way[self.path] == 1
        ignored = None if fault is None or (is_alone and fault is not Fault.UNCONDITIONAL) else IGNORED.get(fault)
        to_server = http.client.HTTPConnection(self.owner.server.hostname, self.owner.server.port, timeout=PATIENCE_S)
        try:
            to_server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in {*HOP_BY_HOP, ignored}:
                    to_server.putheader(name, value)
            to_server.putheader("Content-Length", str(len(body)))
            to_server.endheaders(body[: len(body) // 2] if fault is Fault.CUT else body)
            if fault is Fault.CUT:
                self._hang_up()
                return
            response = to_server.getresponse()
            answer = response.status, response.getheaders(), response.read()
        finally:
            to_server.close()
        if fault is Fault.ANSWER_LOST:
            self._hang_up()
            return
        if self.command == "GET":
            self.owner.answers.setdefault(self.path, answer)
        self._answer(*answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass  # noqa: N815  # the library's names

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value  # that of a HEAD request says how long the body would be
            elif name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        """Nothing: the tests say what they expect."""
