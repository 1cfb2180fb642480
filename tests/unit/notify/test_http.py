"""Requests: what is set explicitly is what is sent, and a page of HTML acknowledges nothing."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import apprise
import pytest
from pydantic import SecretStr

from kafka_telemetry_lake.pipelines.notify import http
from kafka_telemetry_lake.pipelines.notify.http import SinkDownError, post, post_json
from kafka_telemetry_lake.pipelines.runtime.ambient import explicit_settings_win
from kafka_telemetry_lake.pipelines.runtime.http_session import http_session
from tests.support.http_endpoint import Endpoint, endpoint

PAGE = b"\n<!DOCTYPE html>\n<html><body>Please log in</body></html>"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture
def found() -> Iterator[Endpoint]:
    with endpoint() as it:
        yield it


@pytest.fixture
def netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with an entry for this machine, as curl and requests read it."""
    file = tmp_path / "netrc"
    file.write_text("machine 127.0.0.1 login another password secret\n")
    file.chmod(0o600)
    monkeypatch.setenv("NETRC", str(file))
    return file


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        for spelled in (name, name.lower()):
            monkeypatch.setenv(spelled, "")
            monkeypatch.delenv(spelled)


@pytest.mark.usefixtures("netrc")
def test_a_header_that_is_set_is_the_one_that_is_sent(found: Endpoint) -> None:
    post(found.url, {"Authorization": SecretStr("Bearer xyz")}, b"", ())
    post_json(SecretStr(found.url), "/api", {"authorization": "Bearer abc"}, {})
    post(found.url.replace("//", "//me:mine@"), {"Authorization": "Bearer xyz"}, b"", ())
    assert [each.headers["authorization"] for each in found.posts] == ["Bearer xyz", "Bearer abc", "Bearer xyz"]


@pytest.mark.usefixtures("netrc")
def test_another_secret_goes_nowhere(found: Endpoint) -> None:
    post(found.url, {}, b"", ())
    assert "authorization" not in found.posts[0].headers
    http_session().post(found.url.replace("//", "//me:mine@"), data=b"")
    assert found.posts[1].headers["authorization"] == f"Basic {base64.b64encode(b'me:mine').decode()}"


@pytest.mark.usefixtures("netrc")
def test_a_library_that_makes_requests_itself_sends_what_is_set(found: Endpoint) -> None:
    explicit_settings_win()
    target = apprise.Apprise()
    assert target.add(f"{found.url.replace('http', 'json')}/?+Authorization=Bearer%20xyz")
    assert target.notify("a")
    assert found.posts[0].headers["authorization"] == "Bearer xyz"


@pytest.mark.usefixtures("no_proxies")
def test_this_machine_is_asked_without_a_proxy_and_another_one_by_it(
    found: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with endpoint() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        post(found.url, {}, b"", ())
        assert (len(found.posts), len(proxy.posts)) == (1, 0)
        post("http://collector.example:4318/v1/logs", {}, b"", ())
        assert [each.path for each in proxy.posts] == ["http://collector.example:4318/v1/logs"]
    with pytest.raises(
        SinkDownError, match=r"^the proxy that the environment names \(HTTP_PROXY or the like\) can't be"
    ):
        post("http://collector.example:4318/v1/logs", {}, b"", ())


@pytest.mark.usefixtures("no_proxies")
def test_no_proxy_keeps_what_it_says_and_names_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "a.example, b.example")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio.example:9000")
    for _ in range(2):
        explicit_settings_win()
        assert (
            os.environ["NO_PROXY"]
            == os.environ["no_proxy"]
            == "a.example,b.example,localhost,127.0.0.1,127.0.0.0/8,::1,minio.example"
        )
    monkeypatch.setenv("NO_PROXY", "*")
    explicit_settings_win()
    assert os.environ["NO_PROXY"] == "*"


def test_a_missing_file_of_authorities_is_named(found: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/ca.pem")
    with pytest.raises(
        SinkDownError, match=r"^the request fails with Could not find a suitable TLS CA .*: /no/ca.pem$"
    ):
        post(found.url.replace("http", "https"), {}, b"", ())


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        *((kind, PAGE) for kind in ("text/html; charset=utf-8", "", "application/json")),
        *(("text/html", part) for part in (b"<h1>It works!</h1>", b"\n<script>location = '/login'</script>", b"<p>")),
    ],
)
def test_a_page_of_html_or_a_part_of_one_is_no_acknowledgement(found: Endpoint, kind: str, body: bytes) -> None:
    found.answer = lambda _: (200, {"Content-Type": kind}, body)
    with pytest.raises(SinkDownError, match=r"^it answers HTTP 200 with a page of HTML, as a website or a login does"):
        post(found.url, {}, b"", ())


@pytest.mark.parametrize("headers", [b"Content-Length: 5000", b"Transfer-Encoding: chunked\r\n\r\n1388", b"A: b"])
def test_an_answer_that_drips_is_given_up(headers: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ANSWER_S", 0.2)
    given_up = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n\r\n")
            with contextlib.suppress(OSError):  # the client has hung up
                for _ in range(100):  # it ends at last, also for who waits for it
                    if given_up.wait(0.05):
                        break
                    connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        dripping = pool.submit(drip, server)
        try:
            with pytest.raises(SinkDownError, match=r"^no answer within 0 s$"):
                post(f"http://127.0.0.1:{server.getsockname()[1]}", {}, b"", ())
        finally:
            given_up.set()
        dripping.result()


def test_a_path_goes_before_the_query(found: Endpoint) -> None:
    post_json(SecretStr(f"{found.url}/alerts/?tenant=a"), "/api/v2/alerts", {}, [])
    post_json(SecretStr(f"{found.url}/hook?token=a/"), "", {}, [])
    assert [each.path for each in found.posts] == ["/alerts/api/v2/alerts?tenant=a", "/hook?token=a/"]


def test_an_answer_is_what_a_webhook_likes_and_read_whole_however_it_comes_up_to_a_bound(
    found: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    found.answer = lambda _: (201, {"Content-Type": "text/html"}, b"a" * 9000)
    assert post(found.url, {}, b"", ()).body == b"a" * 9000
    monkeypatch.setattr(http, "LONGEST_ANSWER", 5000)
    assert len(post(found.url, {}, b"", ()).body) == 5000


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [("17", 17), ("9" * 5000, 3600), ("-5", 0), ("soon", 0), ("", 0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0)],
)
def test_a_time_to_wait_is_a_number_or_a_date(found: Endpoint, asked: str, seconds: int) -> None:
    found.answer = lambda _: (503, {"Retry-After": asked}, b"")
    with pytest.raises(SinkDownError) as error:
        post(found.url, {}, b"", ())
    assert error.value.retry_after == seconds


def test_a_date_to_wait_for_is_so_many_seconds_away(found: Endpoint) -> None:
    at = datetime.now(UTC) + timedelta(seconds=100)
    found.answer = lambda _: (503, {"Retry-After": format_datetime(at, usegmt=True)}, b"")
    with pytest.raises(SinkDownError) as error:
        post(found.url, {}, b"", ())
    assert 1 <= error.value.retry_after <= 100
