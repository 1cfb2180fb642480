"""A Kafka proxy on loopback that delays answers, or changes the brokers' addresses, so that metadata goes stale.

The latter are the situations of KIP-899 and KIP-1102.

Clients reach the brokers only through it: it replaces the brokers' ports by its own in Metadata and FindCoordinator
responses.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

from kafka_telemetry_lake.sandbox.cluster.ports import ReservedPorts
from kafka_telemetry_lake.sandbox.patience import PATIENCE_S

METADATA, FIND_COORDINATOR = 3, 10
HOST = b"127.0.0.1"
# MetadataResponse v13 after its correlation id: no tags, throttle time, no brokers, cluster id, controller, no topics,
# error 129 = REBOOTSTRAP_REQUIRED (KIP-1102), no tags.
_REBOOTSTRAP_REQUIRED = struct.pack(">bibbibhb", 0, 0, 1, 0, -1, 1, 129, 0)


class AddressProxy:
    """A context manager with one bootstrap address, and one address per broker for the metadata.

    Args:
        upstream: the ports of the real brokers, as in their responses.
        moves: how often the addresses can change.

    Attributes:
        delays: by a broker's real port, seconds that each of its answers takes longer.
        stalled_until: no answer is passed on before this time (time.monotonic).
        unanswered: API keys; a connection over which such a request is answered passes on no answer any more.
    """

    def __init__(self, upstream: Sequence[int], moves: int = 20) -> None:
        self._upstream = list(upstream)
        self._ports = ReservedPorts(1 + len(self._upstream) * (1 + moves))
        self._fresh = iter(self._ports.numbers)
        self.bootstrap_port = next(self._fresh)
        self.addresses = {port: next(self._fresh) for port in self._upstream}
        self.delays = dict.fromkeys(self._upstream, 0.0)
        self.stalled_until = 0.0
        self.unanswered: frozenset[int] = frozenset()
        self._servers: dict[int, asyncio.Server] = {}
        self._connections: set[_Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen(self.bootstrap_port, self._upstream[0]))
        for upstream, port in self.addresses.items():
            self._do(self._listen(port, upstream))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for port in list(self._servers):
            self._do(self._close(port))
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._ports.release()

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.bootstrap_port}"

    def move(self, *, with_bootstrap: bool = False) -> None:
        """Give every broker a new address. The old ones refuse connections; the bootstrap address stays.

        Args:
            with_bootstrap: close the connections over the bootstrap address too, as when a load balancer moves.
        """
        before = list(self.addresses.values())
        self._readdress()
        for port in before:
            self._do(self._close(port))
        if with_bootstrap:
            self._do(self._cut(self.bootstrap_port))

    def vanish(self, *, with_bootstrap: bool = False) -> None:
        """Give every broker a new address. The old ones accept data but never answer.

        Args:
            with_bootstrap: close the connections over the bootstrap address too.
        """
        self._do(self._freeze(set(self.addresses.values())))
        self._readdress()
        if with_bootstrap:
            self._do(self._cut(self.bootstrap_port))

    def cut(self, upstream: int) -> None:
        """Make a broker's address refuse connections, until `restore`."""
        self._do(self._close(self.addresses[upstream]))

    def restore(self, upstream: int) -> None:
        self._do(self._listen(self.addresses[upstream], upstream))

    def require_rebootstrap(self) -> None:
        """Answer Metadata requests of version 13 with error 129, on the connections that are open now."""
        self._do(self._mark_stale())

    def own_answer(self, request: bytes) -> tuple[bytes, Callable[[], None]] | None:  # noqa: ARG002  # for subclasses
        """An answer in place of the brokers', and what is called when it is sent; None: a broker answers.

        Args:
            request: without its size, as is the answer.
        """
        return None

    def passed_on(self, key: int, version: int, answer: bytes) -> bytes:  # noqa: ARG002  # for subclasses
        """What clients get of a broker's answer to a request of this API key and version; both without their size."""
        return answer

    def _readdress(self) -> None:
        for upstream in self._upstream:
            self.addresses[upstream] = next(self._fresh)
            self._do(self._listen(self.addresses[upstream], upstream))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _listen(self, port: int, upstream: int) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = _Connection(self, port, upstream, reader, writer)
            self._connections.add(connection)
            # Cancelled by `_end` only. Python 3.11 logs a traceback for a handler of a stream that ends as cancelled.
            with contextlib.suppress(asyncio.CancelledError):
                await connection.run()
            self._connections.discard(connection)

        self._servers[port] = await asyncio.start_server(serve, "127.0.0.1", port, reuse_address=True)

    async def _close(self, port: int) -> None:
        if port in self._servers:
            self._servers.pop(port).close()
        await self._cut(port)

    async def _cut(self, port: int) -> None:
        for connection in [each for each in self._connections if each.port == port]:
            connection.close()

    async def _end(self) -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _freeze(self, ports: set[int]) -> None:
        for port in ports:
            self._servers.pop(port).close()
            # Connections are accepted and never answered.
            self._servers[port] = await asyncio.start_server(_discard, "127.0.0.1", port, reuse_address=True)
        for connection in self._connections:
            connection.frozen |= connection.port in ports

    async def _mark_stale(self) -> None:
        for connection in self._connections:
            connection.stale = True


async def _discard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.CancelledError):  # as in `serve`
        while await _read(reader):
            pass
    writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> bytes:
    """The next frame without its length; empty at the end of the connection."""
    try:
        return await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
    except (OSError, asyncio.IncompleteReadError):
        return b""


def _write(writer: asyncio.StreamWriter, frame: bytes) -> None:
    if not writer.is_closing():  # asyncio logs each write to a connection that has ended
        writer.write(frame)


class _Connection:
    """A client's connection and the broker's behind it."""

    def __init__(
        self, proxy: AddressProxy, port: int, upstream: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.port = port
        self.frozen = self.stale = self.withholds = False
        self._proxy, self._upstream, self._reader, self._writer = proxy, upstream, reader, writer
        self._asked: dict[int, tuple[int, int]] = {}  # by correlation id: API key and version
        self._own: dict[int, tuple[bytes, Callable[[], None]]] = {}  # the proxy's answers that aren't sent yet
        self._broker: asyncio.StreamWriter | None = None
        self._last_due = 0.0

    def close(self) -> None:
        for writer in (self._writer, self._broker):
            if writer is not None:
                writer.transport.abort()

    async def run(self) -> None:
        try:
            reader, self._broker = await asyncio.open_connection("127.0.0.1", self._upstream)
            both = [asyncio.ensure_future(each) for each in (self._requests(self._broker), self._answers(reader))]
            _, other = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in other:
                task.cancel()
        except OSError:  # the broker is down
            pass
        finally:
            self.close()

    async def _requests(self, broker: asyncio.StreamWriter) -> None:
        while frame := await _read(self._reader):
            key, version, correlation = struct.unpack_from(">hhi", frame)
            self._asked[correlation] = key, version
            if (own := self._proxy.own_answer(frame)) is not None:
                self._own[correlation] = own
                self._send_own()
            elif not self.frozen:
                _write(broker, struct.pack(">i", len(frame)) + frame)

    async def _answers(self, broker: asyncio.StreamReader) -> None:
        while frame := await _read(broker):
            (correlation,) = struct.unpack_from(">i", frame)
            key, version = self._asked.pop(correlation)
            if key in (METADATA, FIND_COORDINATOR):
                for upstream, port in self._proxy.addresses.items():
                    frame = frame.replace(HOST + struct.pack(">i", upstream), HOST + struct.pack(">i", port))
            if key == METADATA and version >= 13 and self.stale:
                frame = frame[:4] + _REBOOTSTRAP_REQUIRED
            frame = self._proxy.passed_on(key, version, frame)
            self.withholds |= key in self._proxy.unanswered
            if not self.frozen and not self.withholds:
                self._answer(struct.pack(">i", len(frame)) + frame)
            self._send_own()

    def _send_own(self) -> None:
        """Answer what the proxy answers itself and is next: clients expect answers in the order of their requests."""
        while self._asked and (own := self._own.pop(first := next(iter(self._asked)), None)) is not None:
            del self._asked[first]
            frame, sent = own
            if not self.frozen and not self.withholds:
                self._answer(struct.pack(">i", len(frame)) + frame)
                sent()

    def _answer(self, frame: bytes) -> None:
        loop = asyncio.get_running_loop()  # whose time is time.monotonic()
        earliest = max(loop.time() + self._proxy.delays[self._upstream], self._proxy.stalled_until)
        if earliest <= loop.time() and self._last_due <= loop.time():
            _write(self._writer, frame)
        else:
            # Answers stay in their order, also if a delay gets shorter; of timers with one time the order isn't known.
            self._last_due = max(earliest, self._last_due + 1e-6)
            loop.call_at(self._last_due, _write, self._writer, frame)
