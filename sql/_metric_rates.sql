-- What are the increase, rate and mean of each metric per client id and :window?
-- increase: exact sum of the deltas, across resets. rate: increase per second of the time that the deltas cover, per
-- series. attribute_keys: a client may push a metric both for itself (empty) and per topic: don't sum the two. resets:
-- counter resets. unknown: points whose increase isn't known (baselines). refused: points that were not converted.
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
FROM :rollups
GROUP BY cluster_id, window_start, client_id, metric, attribute_keys, kind
