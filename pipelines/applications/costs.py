"""What clients' use of a cluster costs: a price list such as ``conf/prices.yml``, and the racks of its brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kafka_telemetry_lake.pipelines.applications.aliases import problem_of_pattern
from kafka_telemetry_lake.pipelines.runtime.field_problems import field_problems, read_yaml
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import HasJvm, admin_client
from kafka_telemetry_lake.udfs.errors import CannotRunError

EVERY_ZONE = "*"
Text = Annotated[str, Field(min_length=1)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class PricesError(CannotRunError):
    """The price list is invalid; the message is one line with the file, the field and what is wrong."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Topic(_Model):
    """How long topics keep their records, and how often."""

    topic: Text
    retention_hours: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    replication_factor: Annotated[int, Field(ge=1, le=32_767)]

    @model_validator(mode="after")
    def _is_a_pattern(self) -> Topic:
        if problem := problem_of_pattern(self.topic):
            raise ValueError(f"topic is no regular expression that every engine reads alike: {problem}")
        return self


class _PricesFile(_Model):
    """All prices are needed, so that none is forgotten; 0 is one."""

    currency: Text
    bytes_in_gb: Price
    bytes_out_gb: Price
    storage_gb_month: Price
    requests_million: Price
    cross_zone_gb: Price | dict[Text, Price]
    topics: list[Topic]


def read_prices(path: Path) -> list[dict[str, Any]]:
    """Read and check a price list.

    Returns:
        Keys and values of table `prices`.

    Raises:
        PricesError: the file is invalid.
    """
    content = read_yaml(path, PricesError)
    try:
        listed = _PricesFile.model_validate(content)
    except ValidationError as error:
        first = field_problems(error, "the list", "needed (0 if it costs nothing)", lambda _: _PricesFile.model_fields)[
            0
        ]
        raise PricesError(f"{path}: {first}") from None
    zones = listed.cross_zone_gb if isinstance(listed.cross_zone_gb, dict) else {EVERY_ZONE: listed.cross_zone_gb}
    prices = {
        ("bytes_in", ""): listed.bytes_in_gb,
        ("bytes_out", ""): listed.bytes_out_gb,
        ("storage", ""): listed.storage_gb_month,
        ("requests", ""): listed.requests_million,
        **{("cross_zone", zone): price for zone, price in zones.items()},
    }
    rows = [_row(item, subject, listed.currency, price=price) for (item, subject), price in prices.items()]
    for position, topic in enumerate(listed.topics):
        kept = {"retention_hours": topic.retention_hours, "replication_factor": topic.replication_factor}
        rows.append(_row("topic", topic.topic, listed.currency, position=position, **kept))
    return rows


def _row(item: str, subject: str, currency: str, **values: Any) -> dict[str, Any]:
    empty = {"position": None, "price": None, "retention_hours": None, "replication_factor": None}
    return {"item": item, "subject": subject, "currency": currency} | empty | values


@dataclass(frozen=True)
class Brokers:
    """The brokers of a cluster that are alive: keys and values of table `brokers`."""

    cluster_id: str
    rows: tuple[dict[str, Any], ...]


def read_brokers(java: HasJvm, bootstrap_servers: str, options: Mapping[str, str]) -> Brokers:
    """Read the brokers of a cluster and their racks (broker.rack, often a cloud's zone).

    Needs no permission but to connect.

    Raises:
        KafkaUnavailableError: the brokers don't answer or refuse access.
    """
    with admin_client(java, bootstrap_servers, options) as client:
        cluster = client.describeCluster()
        rows = tuple({"broker_id": node.id(), "rack": node.rack()} for node in cluster.nodes().get().iterator())
        return Brokers(str(cluster.clusterId().get()), rows)
