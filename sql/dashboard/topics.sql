-- Which topics do the selected clients write and read, and how much? Those that Java clients push of, and those that
-- groups commit offsets of.
WITH traffic AS (
  SELECT
    element_at(attributes, 'topic') AS topic,
    sum(CASE WHEN metric LIKE '%.record.send.total' THEN delta END) AS records_written,
    sum(CASE WHEN metric LIKE '%.topic.byte.total' THEN delta END) AS bytes_written,
    count(DISTINCT CASE WHEN metric LIKE '%.record.send.total' THEN client_id END) AS writers,
    sum(CASE WHEN metric LIKE '%.records.consumed.total' THEN delta END) AS records_read,
    count(DISTINCT CASE WHEN metric LIKE '%.records.consumed.total' THEN client_id END) AS readers
  FROM metric_points
  WHERE metric IN (
    'org.apache.kafka.producer.topic.record.send.total', 'org.apache.kafka.producer.topic.byte.total',
    'org.apache.kafka.consumer.fetch.manager.records.consumed.total'
  )
    AND landed_at >= :start AND landed_at < :stop AND element_at(attributes, 'topic') IS NOT NULL
    AND client_instance_id IN (SELECT client_instance_id FROM chosen)
  GROUP BY element_at(attributes, 'topic')
),

committed AS (
  SELECT topic, count(DISTINCT group_id) AS groups
  FROM group_offsets
  WHERE :filters = 0 OR group_id IN (SELECT group_id FROM chosen)
  GROUP BY topic
)

SELECT coalesce(t.topic, c.topic) AS topic, t.writers, t.records_written, t.bytes_written, t.readers, t.records_read,
  c.groups
FROM traffic AS t
FULL JOIN committed AS c
  ON c.topic = t.topic
ORDER BY t.bytes_written DESC NULLS LAST, t.records_read DESC NULLS LAST, topic
