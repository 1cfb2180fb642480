"""What a broker matches subscriptions against: a client's attributes as landed with each push, and one id for them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kafka_telemetry_lake.udfs.identity import mix, text_hash, text_hashes
from kafka_telemetry_lake.udfs.kernels.arrays import Int64s
from kafka_telemetry_lake.udfs.rows import PUSHES_IN
from kafka_telemetry_lake.udfs.subscriptions.matching import CLIENTS

# Columns of table `pushes` that the id is made of. SubscriptionId decides at which moment the others are matched (M10).
TEXTS = (
    "cluster_id",
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_address",
)
NUMBERS = ("client_port", "subscription_id")
ATTRIBUTES = pa.schema([PUSHES_IN.field(name) for name in (*TEXTS, *NUMBERS)])

MISSING = np.uint64(text_hash("\0missing"))  # NULL is not the empty text


def client_attributes_ids(pushes: pa.Table) -> Int64s:
    """A stable 64-bit id of the attributes of each row (columns `TEXTS`, `NUMBERS`); each text is hashed once."""
    ids = np.zeros(pushes.num_rows, np.uint64)
    for name in TEXTS:
        texts = pushes[name].combine_chunks().dictionary_encode()
        hashes = np.append(text_hashes(texts.dictionary), MISSING)
        ids = mix(ids, hashes[texts.indices.fill_null(len(hashes) - 1).to_numpy()])
    for name in NUMBERS:
        numbers = pushes[name].combine_chunks()
        valid = numbers.is_valid().to_numpy(zero_copy_only=False)
        ids = mix(ids, np.where(valid, numbers.fill_null(0).to_numpy().astype(np.int64).view(np.uint64), MISSING))
    return ids.view(np.int64)


def matchable(attributes: pa.Table) -> pa.Table:
    """Rows of `ATTRIBUTES` as the broker matches them: columns of ``subscriptions.CLIENTS``, all text."""
    columns = [attributes[name].cast(pa.string()) for name in (*TEXTS[1:], NUMBERS[0])]
    return pa.table(columns, schema=CLIENTS)
