"""Servers whose certificate only the machine's own store trusts, as behind a company's proxy: jars and messages."""

from __future__ import annotations

import hashlib
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import trustme
import truststore
from pydantic import SecretStr

from kafka_telemetry_lake.pipelines.notify.delivery import Delivery, deliveries
from kafka_telemetry_lake.pipelines.notify.http import SinkDownError, post_json
from kafka_telemetry_lake.pipelines.runtime import jars as module
from kafka_telemetry_lake.pipelines.runtime.jars import JarsUnavailableError, jars
from tests.unit.notify.changed_findings import change, make_lake, notify_file, record

JAR = b"logs"


class Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(JAR)))
        self.end_headers()
        self.wfile.write(JAR)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def authority(monkeypatch: pytest.MonkeyPatch) -> Iterator[trustme.CA]:
    """A certificate authority that nobody knows yet; no variable says whom to trust."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    yield trustme.CA()
    truststore.extract_from_ssl()


@pytest.fixture
def server(authority: trustme.CA) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as web:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        web.socket = context.wrap_socket(web.socket, server_side=True)
        thread = Thread(target=web.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"https://127.0.0.1:{web.server_port}"
        web.shutdown()
        thread.join()


def known_to_the_machine(authority: trustme.CA, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the authority to OpenSSL's default store, as `update-ca-certificates` does."""
    store = folder / "store.pem"
    authority.cert_pem.write_to_path(str(store))
    monkeypatch.setenv("SSL_CERT_FILE", str(store))


def test_jars_come_from_a_repository_that_the_machine_trusts(
    server: str, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "jars.sha256"
    lock.write_text(f"{hashlib.sha256(JAR).hexdigest()}  kafka-logging/a/b/1/b-1.jar\n", encoding="utf-8")
    monkeypatch.setattr(module, "CHECKSUMS", lock)
    monkeypatch.setattr(module, "TRIES", 0)
    monkeypatch.setenv("TELEMETRY_LAKE_JARS", str(tmp_path / "home"))
    monkeypatch.setenv("TELEMETRY_LAKE_MAVEN", server)
    with pytest.raises(JarsUnavailableError, match="certificate verify failed"):
        jars("kafka-logging")
    known_to_the_machine(authority, tmp_path, monkeypatch)
    assert [jar.read_bytes() for jar in jars("kafka-logging")] == [JAR]


def settle(one: Delivery) -> None:
    one.deliver(threading.Event())


@pytest.mark.parametrize("kind", ["webhook", "apprise"])
def test_messages_go_to_a_sink_that_the_machine_trusts(
    kind: str, server: str, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake(tmp_path)
    record(lake, change("orders"))
    url = server if kind == "webhook" else server.replace("https", "jsons")
    (one,) = deliveries(lake, notify_file(url, type=kind))
    with pytest.raises(SinkDownError):
        settle(one)
    known_to_the_machine(authority, tmp_path, monkeypatch)
    settle(one)  # and nothing is raised


def test_a_sink_that_nobody_trusts_is_named_as_such(server: str) -> None:
    with pytest.raises(SinkDownError, match="its certificate isn't trusted"):
        post_json(SecretStr(server), "/", {}, {})
