"""Configured subscriptions: reading them, and which clients they match."""
