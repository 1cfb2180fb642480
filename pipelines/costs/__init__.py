"""What clients' use of a cluster costs: the price list, and the zones of brokers."""
