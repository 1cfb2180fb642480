"""What may be wrong with a look at the lake: it is looked at again."""

from __future__ import annotations

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError

from kafka_telemetry_lake.udfs.errors import TelemetryLakeError

READ_ERRORS = (TelemetryLakeError, DeltaError, duckdb.Error, OSError, pa.ArrowException)
