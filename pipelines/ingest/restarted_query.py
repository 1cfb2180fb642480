"""A query that goes on when its topic gets partitions.

Spark 4.0's Kafka source fails if it finds a new partition and lets the batch wait (``minOffsetsPerTrigger``): to report
progress it looks the partition up among those of the last batch (``KafkaMicroBatchStream.metrics``). Nothing was read,
and the next start takes the partition from its beginning.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("telemetry-lake")


class RestartedQuery:
    """A `StreamingQuery` that is started again after this failure, and after no other.

    Args:
        start: starts the query from its checkpoint.
        topic: the topic that it reads.
    """

    def __init__(self, start: Callable[[], StreamingQuery], topic: str) -> None:
        self._start, self._topic = start, topic
        self._stopped = False
        self._query = start()
        self.name = self._query.name

    @property
    def isActive(self) -> bool:  # noqa: N802  # as StreamingQuery has it
        return self._current().isActive

    @property
    def status(self) -> dict[str, Any]:
        return self._current().status

    def exception(self) -> StreamingQueryException | None:
        return self._current().exception()

    def stop(self) -> None:
        self._stopped = True
        self._query.stop()

    def _current(self) -> StreamingQuery:
        error = None if self._stopped else self._query.exception()
        if error is not None and is_of_new_partition(str(error), self._topic):
            log.info("%s: topic %s has more partitions, the query starts again", self.name, self._topic)
            self._query = self._start()
        return self._query


def is_of_new_partition(error: str, topic: str) -> bool:
    """Whether a query's error is that of a new partition of `topic`, as Scala words a missing key of a map."""
    return re.match(rf"key not found: {re.escape(topic)}-\d+$", error, re.MULTILINE) is not None
