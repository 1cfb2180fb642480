-- How does each hour compare with the same hour a week before, per metric and client id?
-- Clients without a client id aren't compared: they need not be the same. comparable: both hours have the same coverage (within 10 %); if not, a difference may come from coverage, not load.
-- least_before: 0 of a time that librdkafka measures means that it pushed while there was nothing to measure, and mean_before
-- is too small.
SELECT
  n.cluster_id,
  n.window_start,
  n.client_id,
  n.metric,
  n.attribute_keys,
  n.increase,
  b.increase AS increase_before,
  n.rate,
  b.rate AS rate_before,
  n.mean,
  b.mean AS mean_before,
  b.least AS least_before,
  coalesce(n.rate / nullif(b.rate, 0), n.mean / nullif(b.mean, 0)) AS ratio,
  coalesce(least(n.covered_s, b.covered_s) >= 0.9 * greatest(n.covered_s, b.covered_s), FALSE) AS comparable
FROM metric_rates_1h AS n
JOIN metric_rates_1h AS b
  ON b.cluster_id <=> n.cluster_id AND b.client_id = n.client_id AND n.client_id <> '' AND b.metric = n.metric AND b.kind = n.kind
  AND b.attribute_keys <=> n.attribute_keys
  AND b.window_start = n.window_start - INTERVAL 7 DAYS
