"""A reverse proxy that names its user in a header, as one that authenticates does: requests and the WebSocket alike."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.support.ports import free_port

END_OF_HEAD = b"\r\n\r\n"


@contextmanager
def naming_proxy(port: int, header: str, user: str) -> Iterator[str]:
    """Serve what listens on a port of this machine, with the header added to each request; gives the address."""
    own = free_port()
    with socket.create_server(("127.0.0.1", own)) as server:
        threading.Thread(target=_accept, args=(server, port, f"{header}: {user}".encode()), daemon=True).start()
        yield f"http://127.0.0.1:{own}"


def _accept(server: socket.socket, port: int, line: bytes) -> None:
    with suppress(OSError):  # the server is closed
        while True:
            client, _ = server.accept()
            threading.Thread(target=_serve, args=(client, port, line), daemon=True).start()


def _serve(client: socket.socket, port: int, line: bytes) -> None:
    with suppress(OSError), client, socket.create_connection(("127.0.0.1", port)) as upstream:
        head = b""
        while END_OF_HEAD not in head:
            part = client.recv(65_536)
            if not part:
                return
            head += part
        # One request a connection, except of a WebSocket, which goes on: each has the header.
        head, _, rest = head.partition(END_OF_HEAD)
        if b"upgrade: websocket" not in head.lower():
            head = b"\r\n".join(each for each in head.split(b"\r\n") if not each.lower().startswith(b"connection:"))
            line += b"\r\nConnection: close"
        upstream.sendall(head + b"\r\n" + line + END_OF_HEAD + rest)
        threading.Thread(target=_copy, args=(client, upstream), daemon=True).start()
        _copy(upstream, client)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65_536):
            target.sendall(part)
