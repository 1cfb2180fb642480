-- As of when is each push matched with subscriptions, and how surely is it known which were in force?
-- A push lands under the subscriptions of its time, unless its SubscriptionId says that its client had been told others.
-- subscription_state: what that id says (agrees, older, newer, unknown); NULL: the landing record carries none.
-- subscription_uncertain: it landed between two polls that found different subscriptions, and no id tells which.
SELECT
  o.source,
  o.topic,
  o.partition,
  o.offset,
  o.cluster_id,
  o.landed_at,
  o.client_instance_id,
  o.client_id,
  o.client_attributes_id,
  coalesce(t.subscription_at, o.landed_at) AS subscription_at,
  t.subscription_state,
  u.cluster_id IS NOT NULL AND coalesce(t.subscription_state, 'unknown') = 'unknown' AS subscription_uncertain
FROM push_outcomes AS o
LEFT JOIN told_subscriptions AS t
  ON t.cluster_id = o.cluster_id AND t.client_attributes_id = o.client_attributes_id
  AND (t.landed_from IS NULL OR o.landed_at >= t.landed_from)
  AND (t.landed_to IS NULL OR o.landed_at < t.landed_to)
LEFT JOIN subscription_uncertain_spans AS u
  ON u.cluster_id = o.cluster_id AND u.since < o.landed_at AND o.landed_at < u.until
