-- Where is each task of Kafka Streams, and what does it read and write? One row per task, thread and minute of its clock.
-- A task that moves has rows of two threads. records_consumed, bytes_consumed: from its source topics, repartition topics
-- included; records_produced, bytes_produced: to its sink topics, not to changelogs. buffered_records: most records that
-- waited for the task. process_ratio: mean share of the thread's processing time. end_to_end_max_ms: longest time from a
-- record's timestamp until it was processed. state_keys: estimated keys of its RocksDB stores in the last push.
WITH points AS (
  SELECT
    *,
    element_at(attributes, 'thread_id') AS thread_id,
    element_at(attributes, 'task_id') AS task_id,
    max(landed_at) OVER (
      PARTITION BY cluster_id, client_instance_id, element_at(attributes, 'task_id'), minute
    ) AS last_at
  FROM counted_points
  WHERE metric LIKE 'org.apache.kafka.stream.task.%'
    OR metric LIKE 'org.apache.kafka.stream.topic.%'
    OR metric = 'org.apache.kafka.stream.state.estimate.num.keys'
    OR metric = 'org.apache.kafka.stream.processor.node.record.e2e.latency.max'
),

minutes AS (
  SELECT
    cluster_id,
    client_instance_id,
    thread_id,
    task_id,
    minute,
    count(DISTINCT landed_at) AS pushes,
    sum(CASE WHEN name = 'stream.topic.records.consumed.total' THEN delta END) AS records_consumed,
    sum(CASE WHEN name = 'stream.topic.bytes.consumed.total' THEN delta END) AS bytes_consumed,
    sum(CASE WHEN name = 'stream.topic.records.produced.total' THEN delta END) AS records_produced,
    sum(CASE WHEN name = 'stream.topic.bytes.produced.total' THEN delta END) AS bytes_produced,
    sum(CASE WHEN name = 'stream.task.dropped.records.total' THEN delta END) AS dropped_records,
    max(CASE WHEN name = 'stream.task.active.buffer.count' THEN value END) AS buffered_records,
    avg(CASE WHEN name = 'stream.task.active.process.ratio' THEN value END) AS process_ratio,
    max(CASE WHEN name = 'stream.processor.node.record.e2e.latency.max' THEN value END) AS end_to_end_max_ms,
    sum(CASE WHEN name = 'stream.state.estimate.num.keys' AND landed_at = last_at THEN value END) AS state_keys
  FROM points
  WHERE task_id IS NOT NULL
  GROUP BY cluster_id, client_instance_id, thread_id, task_id, minute
)

SELECT
  m.cluster_id,
  element_at(c.labels, 'group_id') AS application_id,
  m.task_id,
  m.thread_id,
  m.minute,
  m.client_instance_id,
  c.client_id,
  c.application,
  c.owner,
  m.pushes,
  m.records_consumed,
  m.bytes_consumed,
  m.records_produced,
  m.bytes_produced,
  m.dropped_records,
  m.buffered_records,
  m.process_ratio,
  m.end_to_end_max_ms,
  m.state_keys
FROM minutes AS m
LEFT JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(m.cluster_id, '') AND c.client_instance_id = m.client_instance_id
