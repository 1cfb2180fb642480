"""Consumer groups and committed offsets, as Kafka's Admin lists them."""
