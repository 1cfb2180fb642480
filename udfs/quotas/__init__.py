"""Client quotas (KIP-13, KIP-546): precedence, usage windows, estimates from clients' own metrics."""
