"""A broker that knows nothing but its own metadata: what Kafka before 3.7 tells a client about client metrics."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

API_VERSIONS, METADATA = 18, 3
METADATA_VERSION = 4


@contextmanager
def old_broker() -> Iterator[str]:
    """Its address."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Connection) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while size := self.rfile.read(4):
            request = self.rfile.read(struct.unpack(">i", size)[0])
            key, version, correlation = struct.unpack_from(">hhi", request)
            if key == METADATA:
                body = _metadata(*self.connection.getsockname()[:2])
            else:
                body = _api_versions(unsupported=version != 0)
            answer = struct.pack(">i", correlation) + body
            self.wfile.write(struct.pack(">i", len(answer)) + answer)


def _api_versions(unsupported: bool) -> bytes:
    """ApiVersionsResponse v0, which answers a version that isn't known too (error 35)."""
    supported = [(API_VERSIONS, 0, 0), (METADATA, METADATA_VERSION, METADATA_VERSION)]
    return struct.pack(">hi", 35 if unsupported else 0, len(supported)) + b"".join(
        struct.pack(">hhh", *api) for api in supported
    )


def _metadata(host: str, port: int) -> bytes:
    """MetadataResponse v4 of a cluster of this broker, without topics."""
    broker = struct.pack(">ih", 1, len(host)) + host.encode() + struct.pack(">ih", port, -1)
    cluster_id = b"old"
    ending = struct.pack(">h", len(cluster_id)) + cluster_id + struct.pack(">ii", 1, 0)
    return struct.pack(">ii", 0, 1) + broker + ending
