"""A query that goes on when one of its topics gets partitions, or appears.

Spark 4.0's Kafka source fails if it finds a new partition and lets the batch wait (``minOffsetsPerTrigger``): to report
progress it looks the partition up among those of the last batch (``KafkaMicroBatchStream.metrics``). Nothing was read,
and the next start takes the partition from its beginning.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("telemetry-lake")


class RestartedQuery:
    """A `StreamingQuery` that is started again after this failure, and after no other. Several threads may ask it.

    Args:
        start: starts the query from its checkpoint.
        topics: all topics that it may read.
    """

    def __init__(self, start: Callable[[], StreamingQuery], topics: Collection[str]) -> None:
        self._start, self._topics = start, topics
        self._stopped = False
        self._lock = threading.Lock()
        self._query = start()
        self.name = self._query.name

    @property
    def isActive(self) -> bool:  # noqa: N802  # as StreamingQuery has it
        return self._current().isActive or self._current().isActive  # it may have failed since the first look

    @property
    def status(self) -> dict[str, Any]:
        return self._current().status

    def exception(self) -> StreamingQueryException | None:
        return self._current().exception()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._query.stop()

    def _current(self) -> StreamingQuery:
        with self._lock:
            error = None if self._stopped or self._query.isActive else self._query.exception()
            if error is not None and (topic := topic_with_new_partition(str(error), self._topics)) is not None:
                log.info("%s: topic %s has more partitions, the query starts again", self.name, topic)
                self._query = self._start()
            return self._query


def topic_with_new_partition(error: str, topics: Collection[str]) -> str | None:
    """The topic whose new partition made a query fail, as Scala words a missing key of a map; None: another error."""
    match = re.match(r"key not found: (.+)-\d+$", error, re.MULTILINE)
    return match[1] if match is not None and match[1] in topics else None
