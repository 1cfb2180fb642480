-- Which client ids have the most of a metric per hour? Filter by place <= N for the top N, metric and window_start.
-- application, owner: of the client id's instances, separated by commas (entity_owners).
-- amount: the increase of counters, the maximum of other metrics. share: of the total over all client ids.
SELECT
  r.cluster_id,
  window_start,
  metric,
  attribute_keys,
  r.client_id,
  e.application,
  e.owner,
  amount,
  amount / nullif(sum(amount) OVER (PARTITION BY r.cluster_id, window_start, metric, attribute_keys), 0) AS share,
  row_number() OVER (
    PARTITION BY r.cluster_id, window_start, metric, attribute_keys ORDER BY amount DESC, r.client_id
  ) AS place
FROM (
  SELECT cluster_id, window_start, metric, attribute_keys, client_id, coalesce(increase, most) AS amount
  FROM metric_rates_1h
) AS r
LEFT JOIN entity_owners AS e
  ON coalesce(e.cluster_id, '') = coalesce(r.cluster_id, '') AND e.user = '' AND e.client_id = r.client_id
WHERE amount IS NOT NULL
