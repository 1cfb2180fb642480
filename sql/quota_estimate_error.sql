-- How far are estimates from client metrics off the brokers' counts? One row per entity, broker and window with both.
-- error: of the estimated rate, relative to the broker's rate; 0.1 is 10 % too high.
SELECT
  b.cluster_id,
  b.quota_type,
  b.user,
  b.client_id,
  e.application,
  e.owner,
  b.broker_id,
  b.window_start,
  b.window_seconds,
  b.observed_rate,
  c.observed_rate AS estimated_rate,
  c.observed_rate / b.observed_rate - 1 AS error,
  b.used_percent,
  c.used_percent AS estimated_percent,
  b.throttled
FROM quota_usage AS b
JOIN quota_usage AS c
  ON c.cluster_id = b.cluster_id AND c.quota_type = b.quota_type AND c.user = b.user AND c.client_id = b.client_id
  AND c.broker_id = b.broker_id AND c.window_start = b.window_start AND c.window_seconds = b.window_seconds
LEFT JOIN entity_owners AS e
  ON coalesce(e.cluster_id, '') = coalesce(b.cluster_id, '') AND e.user = b.user AND e.client_id = b.client_id
WHERE b.source = 'broker' AND c.source = 'client' AND b.observed_rate > 0
