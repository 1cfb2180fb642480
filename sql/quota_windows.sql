-- What is the best available measure of each entity's quota usage? One row per entity, broker and window.
-- Q14: broker samples take precedence over estimates from clients; a delay that a client reported is the last resort.
SELECT
  cluster_id, broker_id, quota_type, user, client_id, window_start, window_end, window_seconds, samples, observed_rate,
  quota_limit, used_percent, usage_ratio, throttle_ms, delay_s, throttled, source, status
FROM (
  SELECT
    r.*,
    min(rank) OVER (
      PARTITION BY cluster_id, quota_type, user, client_id, window_seconds, window_start, broker_id
    ) AS best_of_broker,
    min(rank) OVER (PARTITION BY cluster_id, quota_type, user, client_id, window_seconds, window_start) AS best
  FROM (
    SELECT u.*, CASE source WHEN 'broker' THEN 1 WHEN 'client' THEN 2 ELSE 3 END AS rank
    FROM quota_usage AS u
  ) AS r
) AS ranked
WHERE rank = best_of_broker AND (rank < 3 OR best = 3)
