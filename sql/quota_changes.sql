-- What was the effect of each quota change? Usage and delays in the ten minutes before and after it, over 10 s windows.
-- limit_before, limit_after: NULL means no limit. The change was made in (not_before, at]; windows in that span are
-- before or after it according to their own limit. A change of <default> includes the buckets that had its limit.
-- application, owner: of the entity's clients (entity_owners); NULL for <default>. Rates are means over buckets, brokers and windows.
WITH changes AS (
  SELECT
    cluster_id, user, client_id, quota_type, valid_from AS at, coalesce(not_before, valid_from) AS not_before,
    limit_before, quota_limit AS limit_after
  FROM quota_history
  WHERE measured
  UNION ALL
  SELECT
    q.cluster_id, q.user, q.client_id, q.quota_type, q.valid_to AS at, q.last_seen_at AS not_before,
    q.quota_limit AS limit_before, CAST(NULL AS DOUBLE) AS limit_after
  FROM quotas AS q
  LEFT JOIN quotas AS n
    ON n.cluster_id = q.cluster_id AND n.user = q.user AND n.client_id = q.client_id AND n.ip = q.ip
    AND n.quota_type = q.quota_type AND n.valid_from = q.valid_to
  WHERE q.valid_to IS NOT NULL AND n.cluster_id IS NULL AND q.quota_type IN ('produce', 'fetch', 'request')
),

near AS (
  SELECT
    c.*,
    w.quota_limit IS NOT DISTINCT FROM CASE WHEN c.limit_before < 9223372036854775807 THEN c.limit_before END AS is_before,
    w.observed_rate,
    w.used_percent,
    w.throttled
  FROM changes AS c
  LEFT JOIN quota_windows AS w
    ON w.window_seconds = 10 AND w.cluster_id = c.cluster_id AND w.quota_type = c.quota_type
    AND (w.user = c.user OR c.user = '<default>' AND w.user <> '')
    AND (w.client_id = c.client_id OR c.client_id = '<default>' AND w.client_id <> '')
    AND w.source <> 'evidence' AND w.status NOT IN ('limit_changed', 'limit_removed')
    AND (
      w.window_end <= c.at AND w.window_start >= c.not_before - INTERVAL '10' MINUTE
      AND w.quota_limit IS NOT DISTINCT FROM CASE WHEN c.limit_before < 9223372036854775807 THEN c.limit_before END
      OR w.window_start >= c.not_before AND w.window_end <= c.at + INTERVAL '10' MINUTE
      AND w.quota_limit IS NOT DISTINCT FROM CASE WHEN c.limit_after < 9223372036854775807 THEN c.limit_after END
    )
)

SELECT
  n.cluster_id,
  n.user,
  n.client_id,
  max(e.application) AS application,
  max(e.owner) AS owner,
  quota_type,
  not_before,
  at,
  limit_before,
  limit_after,
  avg(CASE WHEN is_before THEN observed_rate END) AS rate_before,
  avg(CASE WHEN NOT is_before THEN observed_rate END) AS rate_after,
  avg(CASE WHEN is_before THEN used_percent END) AS used_percent_before,
  avg(CASE WHEN NOT is_before THEN used_percent END) AS used_percent_after,
  CAST(count_if(is_before AND throttled) AS BIGINT) AS throttled_windows_before,
  CAST(count_if(NOT is_before AND throttled) AS BIGINT) AS throttled_windows_after
FROM near AS n
LEFT JOIN entity_owners AS e
  ON coalesce(e.cluster_id, '') = coalesce(n.cluster_id, '') AND e.user = n.user AND e.client_id = n.client_id
GROUP BY n.cluster_id, n.user, n.client_id, quota_type, not_before, at, limit_before, limit_after
