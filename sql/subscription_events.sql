-- When did a client push too early, or with outdated subscriptions? Columns of client_events.
-- early_push: no rule of the protocol allows it. subscription_changed: the SubscriptionId shows that the client still
-- used older subscriptions; one event per client and SubscriptionId.
SELECT
  source,
  cluster_id,
  topic,
  partition,
  offset,
  landed_at,
  client_instance_id,
  client_id,
  landed_at AS at,
  'early_push' AS event,
  map('gap_ms', CAST(gap_ms AS STRING), 'expected_ms', CAST(expected_ms AS STRING)) AS detail
FROM push_discipline
WHERE early AND early_reason IS NULL
UNION ALL
SELECT
  source,
  cluster_id,
  topic,
  partition,
  offset,
  landed_at,
  client_instance_id,
  client_id,
  landed_at AS at,
  'subscription_changed' AS event,
  map('pushed_as_of', date_format(subscription_at, 'yyyy-MM-dd HH:mm:ss.SSSSSS')) AS detail
FROM (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY cluster_id, client_instance_id, subscription_at ORDER BY landed_at, partition, offset
    ) AS number
  FROM push_subscription_times
  WHERE subscription_state = 'older'
) AS events
WHERE number = 1
