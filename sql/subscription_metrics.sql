-- Which points did each subscription ask for? One row per point and subscription.
-- subscription_uncertain: the push landed between two polls with different subscriptions, and has no SubscriptionId to
-- decide.
SELECT
  s.subscription,
  s.interval_ms AS subscription_interval_ms,
  s.subscription_uncertain,
  p.*
FROM metric_points AS p
JOIN push_subscriptions AS s
  ON s.source = p.source AND s.topic = p.topic AND s.partition = p.partition AND s.offset = p.offset
    AND s.landed_at = p.landed_at
WHERE s.matches
  AND size(filter(s.prefixes, prefix -> prefix = '*' OR startswith(p.metric, prefix))) > 0
