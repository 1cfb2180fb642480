-- Who is or was throttled, since when, for how long, on which brokers, and which client instances are affected?
-- One row per entity and period of throttling (Q15): 10 s windows of an entity less than a minute apart, on any broker.
-- ongoing: the period extends into the last minute for which the cluster has windows.
-- client_instance_ids: clients seen in that time that brokers counted in this bucket; matched only by user and client id
-- if the quotas of that time are unknown. application, owner: of these clients, separated by commas.
WITH throttled AS (
  SELECT
    w.*,
    max(window_end) OVER (
      PARTITION BY cluster_id, quota_type, user, client_id ORDER BY window_start, broker_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before
  FROM quota_windows AS w
  WHERE throttled AND window_seconds = 10
),

numbered AS (
  SELECT
    t.*,
    sum(CASE WHEN before >= window_start - INTERVAL '1' MINUTE THEN 0 ELSE 1 END) OVER (
      PARTITION BY cluster_id, quota_type, user, client_id ORDER BY window_start, broker_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS stretch
  FROM throttled AS t
),

stretches AS (
  SELECT
    cluster_id,
    quota_type,
    user,
    client_id,
    stretch,
    min(window_start) AS since,
    max(window_end) AS until,
    10 * count(DISTINCT window_start) AS throttled_s,
    coalesce(sort_array(collect_set(broker_id)), array()) AS brokers,
    max(throttle_ms) AS max_throttle_ms,
    max(delay_s) AS max_delay_s,
    max(usage_ratio) AS max_usage_ratio,
    sort_array(collect_set(source)) AS sources
  FROM numbered
  GROUP BY cluster_id, quota_type, user, client_id, stretch
),

known AS (
  SELECT
    cluster_id,
    client_instance_id,
    coalesce(client_id, '') AS client_id,
    coalesce(substr(principal, instr(principal, ':') + 1), '') AS user,
    application,
    owner,
    first_seen,
    last_seen
  FROM clients
),

behind AS (
  SELECT
    s.cluster_id,
    s.quota_type,
    s.user,
    s.client_id,
    s.stretch,
    k.client_instance_id,
    k.user AS own_user,
    k.client_id AS own_client_id,
    k.application,
    k.owner,
    q.user AS quota_user,
    q.client_id AS quota_client_id,
    row_number() OVER (
      PARTITION BY s.cluster_id, s.quota_type, s.user, s.client_id, s.stretch, k.client_instance_id
      ORDER BY
        CASE q.user WHEN '' THEN 6 WHEN k.user THEN 0 ELSE 3 END
        + CASE q.client_id WHEN '' THEN 3 WHEN k.client_id THEN 1 ELSE 2 END
    ) AS place
  FROM stretches AS s
  JOIN known AS k
    ON coalesce(k.cluster_id, '') = coalesce(s.cluster_id, '') AND (s.user = '' OR k.user = s.user)
    AND (s.client_id = '' OR k.client_id = s.client_id)
    AND k.first_seen < s.until + INTERVAL '10' MINUTE AND k.last_seen > s.since - INTERVAL '10' MINUTE
  LEFT JOIN quotas AS q
    ON q.cluster_id = s.cluster_id AND q.quota_type = s.quota_type AND q.ip = ''
    AND q.valid_from < s.until AND (q.valid_to IS NULL OR q.valid_to >= s.until)
    AND q.user IN (k.user, '<default>', '') AND q.client_id IN (k.client_id, '<default>', '')
    AND q.user || q.client_id <> ''
),

members AS (
  SELECT
    cluster_id,
    quota_type,
    user,
    client_id,
    stretch,
    sort_array(collect_set(client_instance_id)) AS ids,
    nullif(array_join(array_sort(array_distinct(collect_list(application))), ', '), '') AS application,
    nullif(array_join(array_sort(array_distinct(collect_list(owner))), ', '), '') AS owner
  FROM behind
  WHERE place = 1 AND (
    quota_user IS NULL
    OR CASE WHEN quota_user = '' THEN '' ELSE own_user END = user
    AND CASE WHEN quota_client_id = '' THEN '' ELSE own_client_id END = client_id
  )
  GROUP BY cluster_id, quota_type, user, client_id, stretch
),

newest AS (
  SELECT cluster_id, max(window_end) AS newest
  FROM quota_usage
  GROUP BY cluster_id
)

SELECT
  s.cluster_id,
  s.quota_type,
  s.user,
  s.client_id,
  m.application,
  m.owner,
  CASE WHEN s.user = '' THEN 'all users' WHEN s.client_id = '' THEN 'all client ids' END AS shared,
  s.since,
  s.until,
  s.throttled_s,
  s.until > n.newest - INTERVAL '1' MINUTE AS ongoing,
  s.brokers,
  s.max_throttle_ms,
  s.max_delay_s,
  s.max_usage_ratio,
  s.sources,
  coalesce(m.ids, array()) AS client_instance_ids
FROM stretches AS s
JOIN newest AS n
  ON n.cluster_id IS NOT DISTINCT FROM s.cluster_id
LEFT JOIN members AS m
  ON coalesce(m.cluster_id, '') = coalesce(s.cluster_id, '') AND m.quota_type = s.quota_type AND m.user = s.user AND m.client_id = s.client_id
  AND m.stretch = s.stretch
