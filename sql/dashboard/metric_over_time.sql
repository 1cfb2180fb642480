-- How did these metrics change over time, in total and across the selected clients?
-- per_second: increase over all clients, per second of the window. typical and high: median and 95th percentile over
-- client ids of their mean value, or for counters of their rate over the time that their pushes cover.
WITH per_client AS (
  SELECT
    CAST(floor(unix_millis(at) / :step_ms) * :step_ms AS BIGINT) AS at_ms,
    metric,
    client_id,
    sum(points) AS points,
    sum(increase) AS increase,
    sum(covered_s) AS covered_s,
    sum(resets) AS resets,
    sum(baselines) AS baselines,
    sum(value_sum) / nullif(sum(value_count), 0) AS mean,
    max(value_max) AS most
  FROM rollups
  WHERE array_contains(:metrics, metric)
  GROUP BY at_ms, metric, client_id
)

SELECT
  at_ms,
  metric,
  count(*) AS clients,
  sum(points) AS points,
  sum(increase) AS increase,
  sum(increase) * 1000.0 / :step_ms AS per_second,
  percentile_cont(0.5) WITHIN GROUP (ORDER BY CASE WHEN increase IS NULL THEN mean ELSE increase / nullif(covered_s, 0) END) AS typical,
  percentile_cont(0.95) WITHIN GROUP (ORDER BY CASE WHEN increase IS NULL THEN mean ELSE increase / nullif(covered_s, 0) END) AS high,
  max(most) AS most,
  sum(resets) AS resets,
  sum(baselines) AS baselines
FROM per_client
GROUP BY at_ms, metric
ORDER BY metric, at_ms
