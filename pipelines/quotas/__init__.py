"""Configured quotas, brokers' quota samples, clients' own reports, and usage windows."""
