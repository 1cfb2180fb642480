-- Which moment's subscriptions apply to each push, and how certain is that?
-- It is the time of landing, unless the push's SubscriptionId shows that its client still used others.
-- subscription_state: result of comparing that id (agrees, older, newer, unknown); NULL: the record has no id.
-- subscription_uncertain: the push landed between two polls with different subscriptions, and has no id to decide.
SELECT
  o.source,
  o.topic,
  o.partition,
  o.offset,
  o.cluster_id,
  o.landed_at,
  o.landed_date,
  o.client_instance_id,
  o.client_id,
  o.client_attributes_id,
  coalesce(t.subscription_at, o.landed_at) AS subscription_at,
  t.subscription_state,
  u.cluster_id IS NOT NULL AND coalesce(t.subscription_state, 'unknown') = 'unknown' AS subscription_uncertain
FROM push_outcomes AS o
LEFT JOIN announced_subscriptions AS t
  ON t.cluster_id = o.cluster_id AND t.client_attributes_id = o.client_attributes_id
  AND (t.landed_from IS NULL OR o.landed_at >= t.landed_from)
  AND (t.landed_to IS NULL OR o.landed_at < t.landed_to)
LEFT JOIN subscription_uncertain_spans AS u
  ON u.cluster_id = o.cluster_id AND u.since < o.landed_at AND o.landed_at < u.until
