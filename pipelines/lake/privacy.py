"""How personal data, principals and addresses, is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F


@dataclass(frozen=True)
class Privacy:
    """How `principal` and `client_address` are stored: ``keep``, ``hash`` (keyed, 32 hex digits) or ``drop``.

    Without the key nobody can find an address by hashing all of them. The same key gives the same hashes, so queries
    can still group and join by them.
    """

    how: Literal["keep", "hash", "drop"] = "keep"
    key: str = field(default="", repr=False)

    def column(self, value: Column, spark: SparkSession) -> Column:
        """The column that is stored for a column of values."""
        if self.how == "keep":
            return value
        if self.how == "drop":
            return F.lit(None).cast("string")
        # A literal key would be visible in Spark's plans, logs and event log. The rows of a relation are not.
        key = spark.createDataFrame(pa.table({"key": [self.key]})).scalar()
        return F.substring(F.sha2(F.concat(key, F.lit("\0"), value), 256), 1, 32)
