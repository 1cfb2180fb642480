-- How are a metric's values distributed over the fleet per hour: median, 95th percentile and extremes over client ids?
-- The value of a client id is its mean, or for counters its rate per series.
SELECT
  cluster_id,
  window_start,
  metric,
  attribute_keys,
  count(*) AS client_ids,
  percentile_cont(0.5) WITHIN GROUP (ORDER BY measure) AS p50,
  percentile_cont(0.95) WITHIN GROUP (ORDER BY measure) AS p95,
  min(measure) AS least,
  max(measure) AS most
FROM (
  SELECT cluster_id, window_start, metric, attribute_keys, CASE WHEN increase IS NULL THEN mean ELSE rate END AS measure
  FROM metric_rates_1h
) AS measured
WHERE measure IS NOT NULL
GROUP BY cluster_id, window_start, metric, attribute_keys
