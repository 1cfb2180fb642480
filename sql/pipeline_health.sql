-- Does the job keep up? One row per stream of the job: its last batch, and totals of the hour before it.
-- waiting: records of the source that the last batch left. freshness_s: age of the newest rows when they became visible.
-- busy: share of the hour spent in batches; near 1 the job is at its limit. If last_batch_at is far in the past, the job
-- has stopped.
WITH last_batches AS (
  SELECT cluster_id, stream, max(ended_at) AS last_batch_at
  FROM pipeline_metrics
  GROUP BY cluster_id, stream
)
SELECT
  m.cluster_id,
  m.stream,
  max(l.last_batch_at) AS last_batch_at,
  max_by(m.batch_id, m.ended_at) AS batch_id,
  max_by(m.waiting, m.ended_at) AS waiting,
  max_by(m.freshness_s, m.ended_at) AS freshness_s,
  max_by(m.state_bytes, m.ended_at) AS state_bytes,
  count(*) AS batches_1h,
  sum(m.records) AS records_1h,
  sum(m.points) AS points_1h,
  sum(m.quarantined) AS quarantined_1h,
  sum(m.seconds) / 3600 AS busy,
  max(m.seconds) AS longest_batch_s,
  count(DISTINCT m.run_id) - 1 AS restarts_1h
FROM pipeline_metrics AS m
JOIN last_batches AS l ON m.stream = l.stream AND m.cluster_id <=> l.cluster_id
WHERE m.ended_at > l.last_batch_at - INTERVAL 1 HOUR
GROUP BY m.cluster_id, m.stream
