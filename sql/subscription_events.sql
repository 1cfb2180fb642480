-- When did a client push earlier than it may, or still under subscriptions that had changed? Columns of client_events.
-- early_push: nothing that the protocol knows allows it. subscription_changed: by its SubscriptionId the client still
-- worked with an older subscription; one event per client and such subscription.
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
) AS told
WHERE number = 1
