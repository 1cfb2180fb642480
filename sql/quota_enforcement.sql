-- Are clients limited, since when, and who is exempt? One row per cluster and quota type that was ever configured.
-- enforced: any limit is in force. since: the first poll that saw it. exempt: entities whose quota has no limit.
WITH versions AS (
  SELECT
    q.*,
    quota_limit < 9223372036854775807 AS limits,
    coalesce(valid_to, TIMESTAMP '9999-01-01 00:00:00 UTC') AS until
  FROM quotas AS q
),

spans AS (
  SELECT
    v.*,
    max(until) OVER (
      PARTITION BY cluster_id, quota_type ORDER BY valid_from, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS limited_until
  FROM versions AS v
  WHERE limits
),

limited AS (
  SELECT
    cluster_id,
    quota_type,
    max(CASE WHEN limited_until IS NULL OR limited_until < valid_from THEN valid_from END) AS on_since,
    max(valid_to) AS off_since,
    max(until) AS limited_until
  FROM spans
  GROUP BY cluster_id, quota_type
),

configured AS (
  SELECT
    cluster_id,
    quota_type,
    min(valid_from) AS since,
    CAST(count_if(limits AND valid_to IS NULL) AS BIGINT) AS limits,
    coalesce(
      sort_array(
        collect_list(
          CASE WHEN NOT limits AND valid_to IS NULL THEN concat('user=', user, ' client-id=', client_id) END
        )
      ),
      array()
    ) AS exempt
  FROM versions
  GROUP BY cluster_id, quota_type
)

SELECT
  c.cluster_id,
  c.quota_type,
  c.limits > 0 AS enforced,
  CASE WHEN c.limits > 0 THEN l.on_since ELSE coalesce(l.off_since, c.since) END AS since,
  c.limits,
  c.exempt
FROM configured AS c
LEFT JOIN limited AS l
  ON l.cluster_id = c.cluster_id AND l.quota_type = c.quota_type
