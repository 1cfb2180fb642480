-- How much did each metric of each client id grow or stand at, by the minute, with resets and gaps told?
-- increase: exact sum of the deltas, across resets. rate: increase by the second of the time that the deltas cover,
-- per series. attribute_keys: a metric may be told per client (empty) and per topic: don't add the two up. unknown: points whose increase isn't known (baselines).
SELECT
  cluster_id,
  window_start,
  client_id,
  metric,
  attribute_keys,
  kind,
  sum(points) AS points,
  sum(increase) AS increase,
  sum(increase) / nullif(sum(covered_s), 0) AS rate,
  sum(covered_s) AS covered_s,
  sum(resets) AS resets,
  sum(baselines) AS unknown,
  sum(refused) AS refused,
  sum(value_sum) / nullif(sum(value_count), 0) AS mean,
  min(value_min) AS least,
  max(value_max) AS most,
  sum(observed_sum) / nullif(sum(observations), 0) AS observed_mean
FROM metric_rollups_1m
GROUP BY cluster_id, window_start, client_id, metric, attribute_keys, kind
