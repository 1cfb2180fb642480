-- What did each selected client id add to each of these metrics in each window? Rows of `rollups`, summed up to windows:
-- plots and tables of a page are made of them, so that the rollups are read once. at: of the first. above_0_at: of the
-- last whose greatest value is above 0.
SELECT
  min(at) AS at,
  cluster_id,
  client_id,
  metric,
  sum(points) AS points,
  sum(increase) AS increase,
  sum(covered_s) AS covered_s,
  sum(resets) AS resets,
  sum(baselines) AS baselines,
  sum(value_count) AS value_count,
  sum(value_sum) AS value_sum,
  max(value_max) AS value_max,
  max(above_0_at) AS above_0_at
FROM rollups
WHERE array_contains(:metrics, metric)
GROUP BY floor(unix_millis(at) / :step_ms), cluster_id, client_id, metric
