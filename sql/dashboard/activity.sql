-- How many clients pushed over time, how much, and with which outcomes?
SELECT
  CAST(floor(unix_millis(o.landed_at) / :step_ms) * :step_ms AS BIGINT) AS at_ms,
  o.outcome,
  count(DISTINCT o.client_instance_id) AS clients,
  count(*) AS pushes,
  sum(o.points) AS points,
  sum(o.quarantined_points) AS quarantined_points,
  sum(o.decompressed_bytes) AS bytes,
  count(o.lost_start) AS lost_intervals
FROM push_outcomes AS o
WHERE o.landed_at >= :start AND o.landed_at < :stop
  AND (o.client_instance_id IS NULL OR o.client_instance_id IN (SELECT client_instance_id FROM chosen))
GROUP BY at_ms, o.outcome
ORDER BY at_ms, o.outcome
