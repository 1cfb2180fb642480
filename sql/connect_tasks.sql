-- What do the tasks of Kafka Connect's connectors do? One row per client of a task and minute of its clock.
-- Connector and task are read off the client ids that Connect gives: `connector-producer-<connector>-<task>` (role source),
-- `connector-consumer-...` (sink), `connector-dlq-producer-...` (dead_letters: records that a sink could not process). A
-- connector that overrides client.id isn't here. worker_group: the one group whose workers are at the client's address;
-- NULL: none is known, or several are. records, bytes: sent by producers, consumed by consumers. NULL: not pushed.
WITH named AS (
  SELECT
    *,
    regexp_extract(client_id, '^connector-(dlq-)?(producer|consumer)-(.+)-([0-9]+)$', 3) AS connector,
    TRY_CAST(regexp_extract(client_id, '^connector-(dlq-)?(producer|consumer)-(.+)-([0-9]+)$', 4) AS INT) AS task,
    CASE
      WHEN client_id LIKE 'connector-dlq-%' THEN 'dead_letters'
      WHEN client_id LIKE 'connector-producer-%' THEN 'source'
      ELSE 'sink'
    END AS role
  FROM clients
  WHERE regexp_like(client_id, '^connector-(dlq-)?(producer|consumer)-.+-[0-9]+$')
),

minutes AS (
  SELECT
    p.cluster_id,
    p.client_instance_id,
    p.minute,
    count(DISTINCT p.landed_at) AS pushes,
    sum(
      CASE
        WHEN p.name = 'producer.record.send.total' THEN p.delta
        WHEN p.name = 'consumer.fetch.manager.records.consumed.total' AND p.of_topic IS NULL THEN p.delta
      END
    ) AS records,
    sum(
      CASE
        WHEN p.name = 'producer.topic.byte.total' THEN p.delta
        WHEN p.name = 'consumer.fetch.manager.bytes.consumed.total' AND p.of_topic IS NULL THEN p.delta
      END
    ) AS bytes,
    sum(CASE WHEN p.name = 'producer.record.error.total' THEN p.delta END) AS record_errors,
    max(
      CASE WHEN p.name = 'consumer.fetch.manager.records.lag.max' AND p.of_topic IS NULL THEN p.value END
    ) AS records_lag_max
  FROM counted_points AS p
  WHERE p.metric IN (
      'org.apache.kafka.producer.record.send.total',
      'org.apache.kafka.producer.record.error.total',
      'org.apache.kafka.producer.topic.byte.total',
      'org.apache.kafka.consumer.fetch.manager.records.consumed.total',
      'org.apache.kafka.consumer.fetch.manager.bytes.consumed.total',
      'org.apache.kafka.consumer.fetch.manager.records.lag.max'
    )
  GROUP BY p.cluster_id, p.client_instance_id, p.minute
)

SELECT
  n.cluster_id,
  n.connector,
  n.task,
  n.role,
  w.worker_group,
  m.minute,
  n.client_instance_id,
  n.client_id,
  n.application,
  n.owner,
  element_at(n.labels, 'group_id') AS group_id,
  n.client_software_version,
  n.client_address,
  n.state,
  m.pushes,
  m.records,
  m.bytes,
  m.record_errors,
  m.records_lag_max
FROM named AS n
JOIN minutes AS m
  ON coalesce(m.cluster_id, '') = coalesce(n.cluster_id, '') AND m.client_instance_id = n.client_instance_id
LEFT JOIN connect_workers AS w
  ON coalesce(w.cluster_id, '') = coalesce(n.cluster_id, '') AND w.client_address = n.client_address
  AND w.groups_of_address = 1
