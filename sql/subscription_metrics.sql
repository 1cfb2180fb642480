-- Which points did each subscription ask for? One row per point and subscription.
-- subscription_uncertain: the push landed between two polls that found different subscriptions, and carries no id of its
-- own.
SELECT
  s.subscription,
  s.interval_ms AS subscription_interval_ms,
  s.subscription_at IS NULL AND EXISTS (
    SELECT 1
    FROM subscription_uncertain_spans AS u
    WHERE u.cluster_id = p.cluster_id AND u.since < p.landed_at AND p.landed_at < u.until
  ) AS subscription_uncertain,
  p.*
FROM metric_points AS p
JOIN push_subscriptions AS s
  ON s.source = p.source AND s.topic = p.topic AND s.partition = p.partition AND s.offset = p.offset
WHERE s.matches
  AND size(filter(s.prefixes, prefix -> prefix = '*' OR startswith(p.metric, prefix))) > 0
