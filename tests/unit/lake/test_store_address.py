"""An address that isn't that of an S3 store: known before anything is read or written."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from kafka_telemetry_lake.jobs import cli

PAGE = b"<!doctype html><html><body>Console</body></html>"


class _Console(BaseHTTPRequestHandler):
    """A web page for every path, as a store's console has."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Console) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        for name, value in {
            "AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        yield address
        server.shutdown()


@pytest.mark.parametrize("command", ["query --lake {} FROM|pushes", "ingest --source files:. --lake {}"])
def test_a_web_page_is_no_store(console: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([word.replace("|", " ") for word in command.format("s3://lakes/x").split()]) == 2
    assert capsys.readouterr().err == (
        f"telemetry-lake: s3://lakes/x: what answers at {console} is no S3 store: it has a file of any name. Is "
        "AWS_ENDPOINT_URL the address of a web page, such as the store's console?\n"
    )
