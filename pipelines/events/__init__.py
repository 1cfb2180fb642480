"""Client events as records of a Kafka topic."""
