-- Who writes to a topic and who reads from it, how much, over time? One row per role, client id and window. Only Java
-- clients push per topic; consumers before 4.1 write a dot in its name as _ (KIP-1109).
SELECT
  CAST(floor(unix_millis(time) / :step_ms) * :step_ms AS BIGINT) AS at_ms,
  CASE WHEN metric LIKE 'org.apache.kafka.producer.%' THEN 'written' ELSE 'read' END AS role,
  coalesce(client_id, '') AS client_id,
  sum(CASE WHEN metric LIKE '%record%' THEN delta END) AS records,
  sum(CASE WHEN metric LIKE '%byte%' THEN delta END) AS bytes
FROM metric_points
WHERE metric IN (
  'org.apache.kafka.producer.topic.record.send.total', 'org.apache.kafka.producer.topic.byte.total',
  'org.apache.kafka.consumer.fetch.manager.records.consumed.total',
  'org.apache.kafka.consumer.fetch.manager.bytes.consumed.total'
)
  AND landed_at >= :start AND landed_at < :stop
  AND element_at(attributes, 'topic') IN (
    :topic, CASE WHEN metric LIKE 'org.apache.kafka.consumer.%' THEN translate(:topic, '.', '_') ELSE :topic END
  )
GROUP BY at_ms, role, client_id
ORDER BY role, client_id, at_ms
