"""A query goes on when one of its topics gets partitions, or appears.

Spark 4.0's Kafka source fails if it finds a new partition and lets the batch wait (``minOffsetsPerTrigger``): to report
progress it looks the partition up among those of the last batch (``KafkaMicroBatchStream.metrics``). Nothing was read,
and the next start takes the partition from its beginning.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection

log = logging.getLogger("telemetry-lake")


def has_new_partition(topics: Collection[str], error: str) -> bool:
    """Whether a query failed because one of its topics has a new partition, as Scala words a missing key of a map."""
    match = re.match(r"key not found: (.+)-\d+$", error, re.MULTILINE)
    if match is None or match[1] not in topics:
        return False
    log.info("ingest: topic %s has more partitions, the query starts again", match[1])
    return True
