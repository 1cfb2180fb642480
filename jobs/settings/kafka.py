"""The setting `kafka_options`, common to the commands that connect to a cluster."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

PREFIX = "kafka."
# Options of Spark's Kafka source that change no result and that no other setting sets.
OF_SPARK = (
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs",
    "maxRecordsPerPartition", "minPartitions",
)  # fmt: skip
OWN = {
    "subscribe": "topic", "startingoffsets": "starting_offsets", "startingtimestamp": "starting_offsets",
    "maxoffsetspertrigger": "max_records_per_batch", "failondataloss": "fail_on_data_loss",
    "kafka.bootstrap.servers": "bootstrap_servers", "bootstrap.servers": "bootstrap_servers",
}  # fmt: skip


def _check(options: dict[str, str]) -> dict[str, str]:
    """Refuse options that nothing reads, which Spark and Kafka would ignore in silence. Values are never named."""
    for key in options:
        if own := OWN.get(key.lower()):
            raise ValueError(f"{key} is the setting {own}: set --{own.replace('_', '-')}")
        if not key.startswith(PREFIX) and key.lower() not in map(str.lower, OF_SPARK):
            raise ValueError(
                f"{key} would be ignored: options of Kafka's clients begin with {PREFIX}, such as {PREFIX}{key}; "
                f"those of Spark's source are {', '.join(OF_SPARK)}"
            )
    return options


KafkaOptions = Annotated[dict[str, str], Field(default_factory=dict), AfterValidator(_check)]
