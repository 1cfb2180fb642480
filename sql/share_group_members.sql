-- Who reads in each share group (KIP-932), and does it acknowledge? One row per member that pushes and minute of its clock.
-- members: members of the group that pushed in the minute. records_consumed: deliveries, so a record that is delivered
-- again counts again. acknowledgements: accepted, released and rejected records together: clients don't push them apart.
-- NULL: not pushed; share consumers of Java and, from 2.15.0 on, of librdkafka push these metrics, krafka's don't.
WITH minutes AS (
  SELECT
    cluster_id,
    client_instance_id,
    minute,
    count(DISTINCT landed_at) AS pushes,
    sum(CASE WHEN name = 'consumer.share.fetch.manager.records.consumed.total' THEN delta END) AS records_consumed,
    sum(CASE WHEN name = 'consumer.share.fetch.manager.bytes.consumed.total' THEN delta END) AS bytes_consumed,
    sum(CASE WHEN name = 'consumer.share.fetch.manager.acknowledgements.send.total' THEN delta END) AS acknowledgements,
    sum(
      CASE WHEN name = 'consumer.share.fetch.manager.acknowledgements.error.total' THEN delta END
    ) AS failed_acknowledgements,
    sum(CASE WHEN name = 'consumer.share.fetch.manager.fetch.total' THEN delta END) AS fetches,
    avg(CASE WHEN name = 'consumer.share.fetch.manager.fetch.latency.avg' THEN value END) AS fetch_latency_avg_ms,
    max(CASE WHEN name = 'consumer.share.fetch.manager.fetch.latency.max' THEN value END) AS fetch_latency_max_ms,
    sum(CASE WHEN name = 'consumer.share.coordinator.rebalance.total' THEN delta END) AS rebalances,
    sum(CASE WHEN name = 'consumer.share.coordinator.heartbeat.total' THEN delta END) AS heartbeats,
    max(CASE WHEN name = 'consumer.share.time.between.poll.max' THEN value END) AS time_between_poll_max_ms,
    max(CASE WHEN name = 'consumer.share.last.poll.seconds.ago' THEN value END) AS last_poll_ago_max_s
  FROM counted_points
  WHERE metric LIKE 'org.apache.kafka.consumer.share.%'
  GROUP BY cluster_id, client_instance_id, minute
)

SELECT
  m.cluster_id,
  nullif(element_at(c.labels, 'group_id'), '') AS group_id,
  m.minute,
  CASE
    WHEN element_at(c.labels, 'group_id') <> ''
      THEN count(*) OVER (PARTITION BY m.cluster_id, element_at(c.labels, 'group_id'), m.minute)
  END AS members,
  m.client_instance_id,
  c.client_id,
  c.application,
  c.owner,
  c.client_software_name,
  c.client_software_version,
  element_at(c.labels, 'group_member_id') AS group_member_id,
  c.state,
  m.pushes,
  m.records_consumed,
  m.bytes_consumed,
  m.acknowledgements,
  m.failed_acknowledgements,
  m.fetches,
  m.fetch_latency_avg_ms,
  m.fetch_latency_max_ms,
  m.rebalances,
  m.heartbeats,
  m.time_between_poll_max_ms,
  m.last_poll_ago_max_s
FROM minutes AS m
LEFT JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(m.cluster_id, '') AND c.client_instance_id = m.client_instance_id
