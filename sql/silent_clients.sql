-- Which client ids did the cluster see in the last day that pushed nothing in it? One row per client id, user and place
-- where it was seen. seen_in: quotas (a broker's quota sample; user is empty: all users), or group (a member of consumer
-- group group_id at the last `telemetry-lake sync`, from host; user is NULL: unknown). Brokers keep quota samples of
-- clients only while some client quota is set. application, owner: of the member, or of the instances that pushed before
-- (entity_owners). last_seen: NULL for members, which are there. last_push: of an instance
-- with this client id; NULL: none has ever pushed. A client id that pushes from one process and not from another isn't
-- here, unless a group tells its members apart.
-- likely_reason: receiver (the plugin's own producers, which push nothing), stopped (it pushed before: see
-- client_liveness), the one likely reason of all software in the cluster that certainly doesn't push
-- (telemetry_coverage), or unknown.
WITH pushed AS (
  SELECT cluster_id, client_id, max(last_seen) AS last_push
  FROM clients
  GROUP BY cluster_id, client_id
),

sampled AS (
  SELECT cluster_id, client_id, user, max(time) AS last_seen, max(max(time)) OVER (PARTITION BY cluster_id) AS newest
  FROM quota_samples
  WHERE client_id <> ''
  GROUP BY cluster_id, client_id, user
),

seen AS (
  SELECT
    s.cluster_id, s.client_id, s.user, 'quotas' AS seen_in, CAST(NULL AS STRING) AS group_id,
    CAST(NULL AS STRING) AS host, e.application, e.owner, s.last_seen, p.last_push
  FROM sampled AS s
  LEFT JOIN pushed AS p
    ON p.cluster_id <=> s.cluster_id AND p.client_id = s.client_id
  LEFT JOIN entity_owners AS e
    ON e.cluster_id <=> s.cluster_id AND e.user = s.user AND e.client_id = s.client_id
  WHERE s.last_seen >= s.newest - INTERVAL '1' DAY
    AND (p.last_push IS NULL OR p.last_push < s.newest - INTERVAL '1' DAY)

  UNION ALL

  SELECT m.cluster_id, m.client_id, NULL, 'group', m.group_id, m.host, m.application, m.owner, NULL, p.last_push
  FROM consumer_group_members AS m
  LEFT JOIN pushed AS p
    ON p.cluster_id <=> m.cluster_id AND p.client_id = m.client_id
  WHERE NOT m.pushing
),

reasons AS (
  SELECT cluster_id, CASE WHEN count(DISTINCT likely_reason) = 1 THEN max(likely_reason) END AS likely_reason
  FROM telemetry_coverage
  WHERE silent_connections > 0
  GROUP BY cluster_id
)

SELECT
  s.cluster_id,
  s.client_id,
  s.user,
  s.seen_in,
  s.group_id,
  s.host,
  s.application,
  s.owner,
  s.last_seen,
  s.last_push,
  CASE
    WHEN s.client_id RLIKE '^client-telemetry-(lander|status|quotas)-' THEN 'receiver'
    WHEN s.last_push IS NOT NULL AND s.seen_in = 'quotas' THEN 'stopped'
    ELSE coalesce(r.likely_reason, 'unknown')
  END AS likely_reason
FROM seen AS s
LEFT JOIN reasons AS r
  ON r.cluster_id <=> s.cluster_id
