"""A Kafka cluster on this machine, shared by tests, the demo and the benchmarks.

    with LocalCluster(plugin=jar) as cluster:
        cluster.create_topic("orders", partitions=2)
        cluster.subscribe("everything", metrics=["*"], interval_ms=1000)

It needs a Java; Kafka itself is downloaded at first use (``pipelines.runtime.jars``).
"""

from kafka_telemetry_lake.sandbox.cluster.broker import Broker, BrokerError
from kafka_telemetry_lake.sandbox.cluster.cluster import LANDING_TOPICS, LocalCluster
from kafka_telemetry_lake.sandbox.cluster.tools import KafkaToolError

__all__ = ["LANDING_TOPICS", "Broker", "BrokerError", "KafkaToolError", "LocalCluster"]
