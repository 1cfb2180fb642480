-- Which client ids have the most of a metric per hour? Filter by place <= N for the top N, metric and window_start.
-- amount: the increase of counters, the maximum of other metrics. share: of the total over all client ids.
SELECT
  cluster_id,
  window_start,
  metric,
  attribute_keys,
  client_id,
  application,
  owner,
  amount,
  amount / nullif(sum(amount) OVER (PARTITION BY cluster_id, window_start, metric, attribute_keys), 0) AS share,
  row_number() OVER (PARTITION BY cluster_id, window_start, metric, attribute_keys ORDER BY amount DESC, client_id) AS place
FROM (
  SELECT cluster_id, window_start, metric, attribute_keys, client_id, application, owner, coalesce(increase, most) AS amount
  FROM metric_rates_1h
) AS ranked
WHERE amount IS NOT NULL
