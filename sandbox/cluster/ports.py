"""Free loopback ports that stay reserved."""

from __future__ import annotations

import socket
import sys


class ReservedPorts:
    """Ports that the kernel gives to no other process until ``release``.

    On Linux the sockets stay bound. A server that sets SO_REUSEADDR, such as a JVM, may bind and listen on a port
    beside a bound socket that doesn't listen. The kernel never assigns such a port as a free one, even while the
    broker is down.
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
