-- Does each client push when it should (M11, L9)? One row per push with a client instance id, compared with its push
-- interval. gap_ms: time since the previous push. expected_ms: the interval that the gap is compared with. early: the
-- gap is shorter by more than 100 ms, the tolerance between a client's timer and Kafka's record time. early_reason: what
-- allows it: terminating (unless it follows another terminating push, when the broker ignores the flag), new_connection
-- (the first push of a connection, whose broker may not know the earlier ones), interval_changed, connection_unknown
-- (the receiver gives no port). missed: minimum number of pushes missing in the gap; after a possible restart the next
-- push may take 1.5 intervals. NULL: unknown. Pushes that the broker rejected and pushes without metrics never land. A
-- redelivered push counts once.
WITH asked AS (
  SELECT source, topic, partition, offset, landed_at, min(CASE WHEN matches THEN interval_ms END) AS interval_ms
  FROM push_subscriptions
  GROUP BY source, topic, partition, offset, landed_at
  HAVING count(*) = count(matches)
),

pushed AS (
  SELECT
    p.source,
    p.topic,
    p.partition,
    p.offset,
    p.cluster_id,
    p.client_instance_id,
    p.client_id,
    p.landed_at,
    coalesce(p.terminating, FALSE) AS terminating,
    concat(coalesce(p.client_address, ''), ' ', CAST(p.client_port AS STRING)) AS connection,
    CASE WHEN p.push_interval_ms > 0 THEN p.push_interval_ms ELSE a.interval_ms END AS push_interval_ms
  FROM pushes AS p
  JOIN push_outcomes AS o
    ON o.source = p.source AND o.topic = p.topic AND o.partition = p.partition AND o.offset = p.offset
    AND o.landed_at = p.landed_at
  LEFT JOIN asked AS a
    ON a.source = p.source AND a.topic = p.topic AND a.partition = p.partition AND a.offset = p.offset
    AND a.landed_at = p.landed_at
  WHERE p.client_instance_id IS NOT NULL AND o.outcome <> 'duplicate'
),

followed AS (
  SELECT
    *,
    unix_millis(landed_at) - unix_millis(lag(landed_at) OVER client) AS gap_ms,
    lag(push_interval_ms) OVER client AS previous_interval_ms,
    lag(terminating) OVER client AS after_terminating,
    row_number() OVER (
      PARTITION BY cluster_id, client_instance_id, connection ORDER BY landed_at, partition, offset
    ) = 1 AS new_connection
  FROM pushed
  WINDOW client AS (PARTITION BY cluster_id, client_instance_id ORDER BY landed_at, partition, offset)
),

judged AS (
  SELECT
    *,
    previous_interval_ms <> push_interval_ms AS changed,
    CASE
      WHEN push_interval_ms IS NOT NULL AND previous_interval_ms IS NOT NULL
        THEN least(push_interval_ms, previous_interval_ms)
    END AS expected_ms,
    greatest(push_interval_ms, previous_interval_ms) AS longest_ms
  FROM followed
)

SELECT
  j.source,
  j.topic,
  j.partition,
  j.offset,
  j.cluster_id,
  j.client_instance_id,
  j.client_id,
  c.application,
  c.owner,
  j.landed_at,
  terminating,
  j.push_interval_ms,
  gap_ms,
  expected_ms,
  gap_ms + 100 < expected_ms AS early,
  CASE
    WHEN NOT gap_ms + 100 < expected_ms THEN NULL
    WHEN expected_ms IS NULL THEN NULL
    WHEN terminating AND NOT after_terminating THEN 'terminating'
    WHEN connection IS NULL THEN 'connection_unknown'
    WHEN new_connection THEN 'new_connection'
    WHEN changed THEN 'interval_changed'
  END AS early_reason,
  CASE
    WHEN expected_ms IS NULL THEN NULL
    WHEN after_terminating THEN 0
    ELSE greatest(
      0,
      CAST(floor(
        (gap_ms + 100) / nullif(longest_ms, 0) - CASE WHEN connection IS NULL OR new_connection OR changed THEN 1.5 ELSE 1 END
      ) AS BIGINT)
    )
  END AS missed
FROM judged AS j
LEFT JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(j.cluster_id, '') AND c.client_instance_id = j.client_instance_id
