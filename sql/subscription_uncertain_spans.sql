-- When is it uncertain which subscriptions a cluster had (M7)?
-- Before the first poll, and between two polls with different subscriptions. Both ends are certain; spans don't overlap.
WITH spans AS (
  SELECT cluster_id, coalesce(not_seen_at, TIMESTAMP '1970-01-01 00:00:00 UTC') AS since, valid_from AS until
  FROM subscriptions
  UNION
  SELECT cluster_id, last_seen_at AS since, valid_to AS until
  FROM subscriptions
  WHERE valid_to IS NOT NULL
),

reached AS (
  SELECT
    cluster_id,
    since,
    until,
    max(until) OVER (
      PARTITION BY cluster_id ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before
  FROM spans
),

numbered AS (
  SELECT
    cluster_id,
    since,
    until,
    sum(CASE WHEN since < before THEN 0 ELSE 1 END) OVER (PARTITION BY cluster_id ORDER BY since, until) AS span
  FROM reached
)

SELECT cluster_id, min(since) AS since, max(until) AS until
FROM numbered
GROUP BY cluster_id, span
