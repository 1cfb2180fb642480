"""Real Kafka clients that tests and the demo start, close, kill and pause.

with LocalCluster(...) as cluster, LocalClients(cluster) as clients:
    producer = clients.producer("java", "orders", "orders-1", records=1000, rate=200)
    producer.wait_for("done")
    counted = producer.close()
"""

from kafka_telemetry_lake.sandbox.clients.client import Client, ClientError
from kafka_telemetry_lake.sandbox.clients.clients import ClientUnavailableError, Library, LocalClients

__all__ = ["Client", "ClientError", "ClientUnavailableError", "Library", "LocalClients"]
