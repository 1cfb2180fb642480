"""The client lifecycle: follows two tables next to the streams, and writes `client_changes` and events."""
