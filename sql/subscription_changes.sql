-- Which subscriptions were created, changed and deleted, and between which polls?
SELECT
  v.cluster_id,
  v.valid_from AS at,
  v.not_seen_at AS not_before,
  CASE WHEN before.name IS NULL THEN 'created' ELSE 'changed' END AS change,
  v.name AS subscription,
  v.metrics,
  v.interval_ms,
  v.match
FROM subscriptions AS v
LEFT JOIN subscriptions AS before
  ON before.cluster_id = v.cluster_id AND before.name = v.name AND before.valid_to = v.valid_from
UNION ALL
SELECT
  v.cluster_id,
  v.valid_to AS at,
  v.last_seen_at AS not_before,
  'deleted' AS change,
  v.name AS subscription,
  v.metrics,
  v.interval_ms,
  v.match
FROM subscriptions AS v
LEFT JOIN subscriptions AS after
  ON after.cluster_id = v.cluster_id AND after.name = v.name AND after.valid_from = v.valid_to
WHERE v.valid_to IS NOT NULL AND after.name IS NULL
