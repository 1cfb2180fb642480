-- How is each process of a Kafka Streams application? One row per process (KafkaStreams object) and minute of its clock.
-- Pushed by its admin client (KIP-1076, KIP-1091). application_id: application.id. state, alive_threads: of the last push
-- in the minute. running_pushes, rebalancing_pushes: pushes that found it RUNNING, and REBALANCING until all tasks run.
-- debug_metrics: whether metrics.recording.level is DEBUG or TRACE; at INFO, Streams pushes 0 for metrics of these levels.
WITH minutes AS (
  SELECT
    cluster_id,
    client_instance_id,
    minute,
    count(DISTINCT landed_at) AS pushes,
    max(CASE WHEN name = 'stream.client.state' THEN element_at(attributes, 'application_id') END) AS application_id,
    max(CASE WHEN name = 'stream.client.state' THEN element_at(attributes, 'process_id') END) AS process_id,
    max_by(
      CASE WHEN name = 'stream.client.state' THEN value END, CASE WHEN name = 'stream.client.state' THEN landed_at END
    ) AS state,
    count(CASE WHEN name = 'stream.client.state' AND value = 2 THEN 1 END) AS running_pushes,
    count(CASE WHEN name = 'stream.client.state' AND value = 1 THEN 1 END) AS rebalancing_pushes,
    max_by(
      CASE WHEN name = 'stream.alive.stream.threads' THEN value END,
      CASE WHEN name = 'stream.alive.stream.threads' THEN landed_at END
    ) AS alive_threads,
    sum(CASE WHEN name = 'stream.failed.stream.threads' THEN delta END) AS failed_threads,
    max(CASE WHEN name = 'stream.recording.level' THEN value END) AS recording_level
  FROM counted_points
  WHERE metric IN (
      'org.apache.kafka.stream.client.state',
      'org.apache.kafka.stream.alive.stream.threads',
      'org.apache.kafka.stream.failed.stream.threads',
      'org.apache.kafka.stream.recording.level'
    )
  GROUP BY cluster_id, client_instance_id, minute
)

SELECT
  m.cluster_id,
  m.application_id,
  m.process_id,
  m.minute,
  m.client_instance_id,
  c.client_id,
  c.application,
  c.owner,
  c.client_software_version,
  c.client_address,
  m.pushes,
  CASE m.state
    WHEN 0 THEN 'CREATED'
    WHEN 1 THEN 'REBALANCING'
    WHEN 2 THEN 'RUNNING'
    WHEN 3 THEN 'PENDING_SHUTDOWN'
    WHEN 4 THEN 'NOT_RUNNING'
    WHEN 5 THEN 'PENDING_ERROR'
    WHEN 6 THEN 'ERROR'
  END AS state,
  m.running_pushes,
  m.rebalancing_pushes,
  m.alive_threads,
  m.failed_threads,
  m.recording_level > 0 AS debug_metrics
FROM minutes AS m
LEFT JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(m.cluster_id, '') AND c.client_instance_id = m.client_instance_id
