-- Who is closest to a limit now? The newest 10 s window of each entity and broker; ORDER BY used_percent DESC.
-- "Now" is the newest window of the cluster; windows more than ten minutes older are excluded.
-- application, owner: of the entity's clients, separated by commas (entity_owners).
-- shared: the bucket counts all users, or all client ids, together.
SELECT
  a.cluster_id,
  quota_type,
  a.user,
  a.client_id,
  e.application,
  e.owner,
  CASE WHEN a.user = '' THEN 'all users' WHEN a.client_id = '' THEN 'all client ids' END AS shared,
  broker_id,
  window_start,
  observed_rate,
  quota_limit,
  used_percent,
  usage_ratio,
  CASE WHEN quota_limit > observed_rate THEN quota_limit - observed_rate WHEN quota_limit <= observed_rate THEN 0 END AS headroom,
  throttled,
  delay_s,
  source,
  status
FROM (
  SELECT
    w.*,
    row_number() OVER (
      PARTITION BY cluster_id, quota_type, user, client_id, broker_id ORDER BY window_start DESC
    ) AS age,
    max(window_start) OVER (PARTITION BY cluster_id) AS newest
  FROM quota_windows AS w
  WHERE window_seconds = 10
) AS a
LEFT JOIN entity_owners AS e
  ON coalesce(e.cluster_id, '') = coalesce(a.cluster_id, '') AND e.user = a.user AND e.client_id = a.client_id
WHERE age = 1 AND window_start >= newest - INTERVAL '10' MINUTE
