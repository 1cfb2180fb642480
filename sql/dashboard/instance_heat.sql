-- How does a metric differ between the instances of a client id, over time? One row per instance and window, of the :top
-- instances that have the most of it; amount: increase per second of a counter, mean of a gauge. A counter's window without
-- an increase that is known, such as that of its first point, has no row.
WITH measured AS (
  SELECT
    client_instance_id,
    CAST(floor(unix_millis(time) / :step_ms) * :step_ms AS BIGINT) AS at_ms,
    coalesce(sum(delta) * 1000.0 / :step_ms, avg(CASE WHEN kind = 'gauge' THEN value END)) AS amount
  FROM metric_points
  WHERE metric = :metric AND landed_at >= :start AND landed_at < :stop AND client_id = :client
    AND coalesce(size(map_keys(attributes)), 0) <= 0
  GROUP BY client_instance_id, at_ms
),

ranked AS (
  SELECT client_instance_id, row_number() OVER (ORDER BY max(amount) DESC NULLS LAST, client_instance_id) AS place
  FROM measured
  GROUP BY client_instance_id
)

SELECT m.client_instance_id, m.at_ms, m.amount, r.place
FROM measured AS m
JOIN ranked AS r
  ON r.client_instance_id = m.client_instance_id
WHERE r.place <= :instances AND m.amount IS NOT NULL
ORDER BY r.place, m.at_ms
