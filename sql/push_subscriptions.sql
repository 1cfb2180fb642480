-- Which subscriptions matched the client of each push when it landed?
-- One row per push and matching version. matches: NULL if the patterns of the version can't be evaluated here.
-- subscription_at: for a push with a SubscriptionId, a time at which the subscriptions of that id were in force.
SELECT
  o.source,
  o.topic,
  o.partition,
  o.offset,
  o.landed_at,
  o.cluster_id,
  o.subscription_at,
  o.subscription_state,
  o.subscription_uncertain,
  v.name AS subscription,
  v.metrics AS prefixes,
  least(v.interval_ms, 300000) AS interval_ms,
  m.matches
FROM push_subscription_times AS o
JOIN client_matches AS m
  ON m.cluster_id = o.cluster_id AND m.client_attributes_id = o.client_attributes_id
JOIN subscriptions AS v
  ON v.cluster_id = m.cluster_id AND v.name = m.name AND v.valid_from = m.valid_from
WHERE o.subscription_at >= v.valid_from AND (v.valid_to IS NULL OR o.subscription_at < v.valid_to)
