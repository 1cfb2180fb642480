-- Who has most of a metric, by the hour? Filter place <= N for the top N client ids, and metric and window_start.
-- amount: the increase of counters, the greatest value of others. share: of what all client ids had.
SELECT
  cluster_id,
  window_start,
  metric,
  attribute_keys,
  client_id,
  amount,
  amount / nullif(sum(amount) OVER (PARTITION BY cluster_id, window_start, metric, attribute_keys), 0) AS share,
  row_number() OVER (PARTITION BY cluster_id, window_start, metric, attribute_keys ORDER BY amount DESC, client_id) AS place
FROM (
  SELECT cluster_id, window_start, metric, attribute_keys, client_id, coalesce(increase, most) AS amount
  FROM metric_rates_1h
) AS ranked
WHERE amount IS NOT NULL
