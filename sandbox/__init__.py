"""A local Kafka cluster and real clients, for the demo, tests and benchmarks."""
