"""Free loopback ports that stay ours."""

from __future__ import annotations

import socket
import sys


class ReservedPorts:
    """Ports that nobody else is given until ``release``.

    On Linux the sockets stay bound: a server that sets SO_REUSEADDR, as the JVM's do, may bind and listen
    beside a bound socket that doesn't listen, while the kernel gives the port to nobody who asks for a free
    one, also while the broker is down.
    """

    def __init__(self, count: int) -> None:
        self._sockets = [socket.socket() for _ in range(count)]
        for each in self._sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
        self.numbers = [each.getsockname()[1] for each in self._sockets]
        if sys.platform != "linux":
            self.release()

    def release(self) -> None:
        for each in self._sockets:
            each.close()
