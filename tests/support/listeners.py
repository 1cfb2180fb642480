"""Servers that answer as a test wants them to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on a free port that treats each connection by `answer`; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):  # closed at the end
                while True:
                    connection, _ = server.accept()
                    kept.append(connection)
                    with suppress(OSError):
                        answer(connection)

        kept: list[socket.socket] = []
        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        for connection in kept:
            connection.close()
