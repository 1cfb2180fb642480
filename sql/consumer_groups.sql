-- How do consumer groups get on? One row per consumer instance and minute of its clock, with its group.
-- members: instances of the group that pushed in the minute. Times in ms; NULL: the client doesn't tell (librdkafka has
-- assigned_partitions, rebalance_latency and commit_latency only). member_ids: member ids it had so far, ten at most:
-- each is a new membership. Averages are means of the pushes' averages. -1 of last_heartbeat reads as NULL: none yet.
WITH told AS (
  SELECT *, substring(metric, 18) AS name
  FROM metric_points
  WHERE metric LIKE 'org.apache.kafka.consumer.coordinator.%'
    AND delta_status NOT IN ('duplicate', 'conflict', 'too_late')
),

minutes AS (
  SELECT
    p.cluster_id,
    p.client_instance_id,
    date_trunc('minute', p.time) AS minute,
    count(DISTINCT p.landed_at) AS pushes,
    max(CASE WHEN p.name = 'consumer.coordinator.assigned.partitions' THEN p.value END) AS assigned_partitions,
    sum(CASE WHEN p.name = 'consumer.coordinator.rebalance.total' THEN p.delta END) AS rebalances,
    sum(CASE WHEN p.name = 'consumer.coordinator.failed.rebalance.total' THEN p.delta END) AS failed_rebalances,
    avg(CASE WHEN p.name = 'consumer.coordinator.rebalance.latency.avg' THEN p.value END) AS rebalance_latency_avg_ms,
    max(CASE WHEN p.name = 'consumer.coordinator.rebalance.latency.max' THEN p.value END) AS rebalance_latency_max_ms,
    sum(CASE WHEN p.name = 'consumer.coordinator.rebalance.latency.total' THEN p.delta END) AS rebalance_latency_ms,
    avg(CASE WHEN p.name = 'consumer.coordinator.join.time.avg' THEN p.value END) AS join_time_avg_ms,
    max(CASE WHEN p.name = 'consumer.coordinator.join.time.max' THEN p.value END) AS join_time_max_ms,
    avg(CASE WHEN p.name = 'consumer.coordinator.sync.time.avg' THEN p.value END) AS sync_time_avg_ms,
    max(CASE WHEN p.name = 'consumer.coordinator.sync.time.max' THEN p.value END) AS sync_time_max_ms,
    sum(CASE WHEN p.name = 'consumer.coordinator.heartbeat.total' THEN p.delta END) AS heartbeats,
    max(
      CASE WHEN p.name = 'consumer.coordinator.heartbeat.response.time.max' THEN p.value END
    ) AS heartbeat_response_time_max_ms,
    max(
      CASE WHEN p.name = 'consumer.coordinator.last.heartbeat.seconds.ago' AND p.value >= 0 THEN p.value END
    ) AS last_heartbeat_ago_max_s,
    avg(CASE WHEN p.name = 'consumer.coordinator.commit.latency.avg' THEN p.value END) AS commit_latency_avg_ms,
    max(CASE WHEN p.name = 'consumer.coordinator.commit.latency.max' THEN p.value END) AS commit_latency_max_ms,
    sum(CASE WHEN p.name = 'consumer.coordinator.commit.total' THEN p.delta END) AS commits
  FROM told AS p
  GROUP BY p.cluster_id, p.client_instance_id, date_trunc('minute', p.time)
)

SELECT
  m.cluster_id,
  element_at(c.labels, 'group_id') AS group_id,
  m.minute,
  count(*) OVER (PARTITION BY m.cluster_id, element_at(c.labels, 'group_id'), m.minute) AS members,
  m.client_instance_id,
  c.client_id,
  c.application,
  c.owner,
  c.client_software_name,
  c.client_software_version,
  element_at(c.labels, 'group_instance_id') AS group_instance_id,
  element_at(c.labels, 'group_member_id') AS group_member_id,
  array_size(c.group_member_ids) AS member_ids,
  c.state,
  m.pushes,
  m.assigned_partitions,
  m.rebalances,
  m.failed_rebalances,
  m.rebalance_latency_avg_ms,
  m.rebalance_latency_max_ms,
  m.rebalance_latency_ms,
  m.join_time_avg_ms,
  m.join_time_max_ms,
  m.sync_time_avg_ms,
  m.sync_time_max_ms,
  m.heartbeats,
  m.heartbeat_response_time_max_ms,
  m.last_heartbeat_ago_max_s,
  m.commit_latency_avg_ms,
  m.commit_latency_max_ms,
  m.commits
FROM minutes AS m
JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(m.cluster_id, '') AND c.client_instance_id = m.client_instance_id
