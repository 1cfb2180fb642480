"""Application, library and group of the clients that points come from."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.pipelines.query.lake_query import run_query

AGAIN_S = 300.0  # after so long clients are read again, as aliases and rules may have changed
WAIT_S = 60.0  # so long rows wait for their clients to be in client_changes, which they are some seconds later
KNOWN = pa.schema(
    [
        (name, pa.string())
        for name in (
            "cluster_id",
            "client_instance_id",
            "application",
            "client_software_name",
            "client_software_version",
            "group_id",
        )
    ]
)
_SQL = """
SELECT cluster_id, client_instance_id, application, client_software_name, client_software_version,
  list_extract(map_extract(labels, 'group_id'), 1) AS group_id
FROM clients
"""


class KnownClients:
    """The clients of a lake, as its view `clients` has them. Several threads may ask."""

    def __init__(self, lake: str, clock: Callable[[], float] = time.time) -> None:
        self._lake, self._clock = lake, clock
        self._waits_since: dict[str, float] = {}
        self._lock = threading.Lock()
        self.reads = 0
        self.read()

    def read(self) -> None:
        """Read them now."""
        self.rows: pa.Table = run_query(self._lake, _SQL).read_all().cast(KNOWN)
        self._read_at = self._clock()
        self.reads += 1

    def may_go_on(self, instances: pa.ChunkedArray, who: str = "") -> bool:
        """Whether all client instances are known, or rows have waited for them long enough.

        Args:
            who: waits.
        """
        with self._lock:
            now = self._clock()
            if now - self._read_at > AGAIN_S or not self._knows(instances):
                self.read()
            if self._knows(instances) or now - self._waits_since.setdefault(who, now) >= WAIT_S:
                self._waits_since.pop(who, None)
                return True
            return False

    def _knows(self, instances: pa.ChunkedArray) -> bool:
        named = pc.unique(instances).drop_null()
        return bool(pc.all(pc.is_in(named, self.rows["client_instance_id"]), min_count=0).as_py())
