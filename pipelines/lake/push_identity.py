"""The columns that identify a push. They have their own module because maintenance runs without Spark."""

# Rule D1. cluster_id may be NULL. The record's time is included because a topic that was deleted and created again
# uses the same offsets for other records.
IDENTITY = ("source", "cluster_id", "topic", "partition", "offset", "landed_at")
