-- What changed about a client id, and when? One row per change.
-- first_seen: its first client instance. new_version: the first instance of a library and version that the client id had
-- not had. started, ended: other client instances; a restart is one of each. quota: the limit that applies to one of its
-- users, by Kafka's precedence. subscription: what one that matches its clients asks for. subject: the client instance, the
-- user and quota type, or the subscription. before, after: version, limit (bytes per second and broker, or percentage), or
-- metrics and interval; none: no limit, or no such subscription for it. The change was made in (not_before, at]. What the
-- first poll of a cluster found is no change.
WITH instances AS (
  SELECT
    cluster_id,
    client_id,
    client_instance_id,
    first_seen,
    CASE state WHEN 'terminated' THEN terminated_at WHEN 'silent' THEN silent_at END AS ended_at,
    last_seen,
    nullif(concat_ws(' ', client_software_name, client_software_version), '') AS version
  FROM clients
  WHERE client_id <> ''
),

starts AS (
  SELECT
    *,
    lag(version) OVER (PARTITION BY cluster_id, client_id ORDER BY first_seen, client_instance_id) AS version_before,
    row_number() OVER (PARTITION BY cluster_id, client_id ORDER BY first_seen, client_instance_id) AS number,
    row_number() OVER (
      PARTITION BY cluster_id, client_id, version ORDER BY first_seen, client_instance_id
    ) AS number_of_version
  FROM instances
),

pairs AS (
  SELECT DISTINCT
    cluster_id, client_id, coalesce(substr(principal, instr(principal, ':') + 1), '') AS user
  FROM clients
  WHERE client_id <> ''
),

limits AS (
  SELECT
    cluster_id, quota_type, user, client_id, valid_from, valid_to, not_seen_at, last_seen_at,
    CASE
      WHEN quota_limit < 9223372036854775807 THEN CAST(CAST(quota_limit AS DECIMAL(20, 2)) AS STRING) ELSE 'none'
    END AS limit_text
  FROM quotas
  WHERE ip = '' AND user || client_id <> '' AND quota_type IN ('produce', 'fetch', 'request')
),

limit_times AS (
  SELECT cluster_id, quota_type, user, client_id, valid_from AS at, not_seen_at AS not_before
  FROM limits
  WHERE not_seen_at IS NOT NULL
  UNION ALL
  SELECT cluster_id, quota_type, user, client_id, valid_to AS at, last_seen_at AS not_before
  FROM limits
  WHERE valid_to IS NOT NULL
),

affected AS (
  SELECT p.cluster_id, p.client_id, p.user, t.quota_type, t.at, max(t.not_before) AS not_before
  FROM pairs AS p
  JOIN limit_times AS t
    ON t.cluster_id = p.cluster_id AND t.user IN (p.user, '<default>', '')
    AND t.client_id IN (p.client_id, '<default>', '')
  GROUP BY p.cluster_id, p.client_id, p.user, t.quota_type, t.at
),

applied AS (
  SELECT
    a.cluster_id,
    a.client_id,
    a.user,
    a.quota_type,
    a.at,
    a.not_before,
    l.limit_text,
    l.valid_from < a.at AND coalesce(l.valid_to >= a.at, TRUE) AS is_before,
    l.valid_from <= a.at AND coalesce(l.valid_to > a.at, TRUE) AS is_after,
    -- As in client_quotas: the least applies.
    CASE l.user WHEN '' THEN 6 WHEN a.user THEN 0 WHEN '<default>' THEN 3 END
    + CASE l.client_id WHEN '' THEN 3 WHEN a.client_id THEN 1 WHEN '<default>' THEN 2 END AS level
  FROM affected AS a
  JOIN limits AS l
    ON l.cluster_id = a.cluster_id AND l.quota_type = a.quota_type
    AND l.user IN (a.user, '<default>', '') AND l.client_id IN (a.client_id, '<default>', '')
),

limit_changes AS (
  SELECT
    cluster_id,
    client_id,
    user,
    quota_type,
    at,
    not_before,
    coalesce(min_by(limit_text, CASE WHEN is_before THEN level END), 'none') AS before,
    coalesce(min_by(limit_text, CASE WHEN is_after THEN level END), 'none') AS after
  FROM applied
  GROUP BY cluster_id, client_id, user, quota_type, at, not_before
),

matched AS (
  SELECT DISTINCT
    s.cluster_id,
    a.client_id,
    s.name,
    concat(concat_ws(',', s.metrics), ' every ', CAST(s.interval_ms AS STRING), ' ms') AS asked,
    s.valid_from,
    s.valid_to,
    s.not_seen_at,
    s.last_seen_at
  FROM subscriptions AS s
  JOIN client_matches AS m
    ON m.cluster_id = s.cluster_id AND m.name = s.name AND m.valid_from = s.valid_from
  JOIN client_attributes AS a
    ON a.client_attributes_id = m.client_attributes_id
  WHERE m.matches AND a.client_id <> ''
),

subscription_times AS (
  SELECT cluster_id, client_id, name, at, max(not_before) AS not_before
  FROM (
    SELECT cluster_id, client_id, name, valid_from AS at, not_seen_at AS not_before
    FROM matched
    WHERE not_seen_at IS NOT NULL
    UNION ALL
    SELECT cluster_id, client_id, name, valid_to AS at, last_seen_at AS not_before
    FROM matched
    WHERE valid_to IS NOT NULL
  ) AS times
  GROUP BY cluster_id, client_id, name, at
),

changes AS (
  SELECT
    cluster_id,
    client_id,
    first_seen AS at,
    CAST(NULL AS TIMESTAMP) AS not_before,
    CASE
      WHEN number = 1 THEN 'first_seen'
      WHEN number_of_version = 1 AND version IS NOT NULL THEN 'new_version'
      ELSE 'started'
    END AS change,
    client_instance_id AS subject,
    version_before AS before,
    version AS after
  FROM starts
  UNION ALL
  SELECT
    cluster_id,
    client_id,
    ended_at AS at,
    last_seen AS not_before,
    'ended' AS change,
    client_instance_id AS subject,
    version AS before,
    CAST(NULL AS STRING) AS after
  FROM instances
  WHERE ended_at IS NOT NULL
  UNION ALL
  SELECT
    cluster_id,
    client_id,
    at,
    not_before,
    'quota' AS change,
    concat_ws(' ', nullif(user, ''), quota_type) AS subject,
    before,
    after
  FROM limit_changes
  WHERE before <> after
  UNION ALL
  SELECT
    t.cluster_id,
    t.client_id,
    t.at,
    t.not_before,
    'subscription' AS change,
    t.name AS subject,
    coalesce(o.asked, 'none') AS before,
    coalesce(n.asked, 'none') AS after
  FROM subscription_times AS t
  LEFT JOIN matched AS o
    ON o.cluster_id = t.cluster_id AND o.client_id = t.client_id AND o.name = t.name AND o.valid_to = t.at
  LEFT JOIN matched AS n
    ON n.cluster_id = t.cluster_id AND n.client_id = t.client_id AND n.name = t.name AND n.valid_from = t.at
  WHERE o.asked IS DISTINCT FROM n.asked
)

SELECT
  c.*,
  e.application,
  e.owner
FROM changes AS c
LEFT JOIN entity_owners AS e
  ON coalesce(e.cluster_id, '') = coalesce(c.cluster_id, '') AND e.user = '' AND e.client_id = c.client_id
