"""The running job's metrics, progress and health."""
