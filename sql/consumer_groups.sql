-- How are consumer groups doing? One row per consumer instance and minute of its clock, with its group.
-- Members that push nothing but are known from `telemetry-lake sync` have one row each: pushes 0, client_instance_id
-- NULL, and the minute in which their assignment was first seen. members: members of the group that pushed in the minute:
-- instances with a member id; those that have the group's id but assign their partitions by hand, such as the internal
-- consumers of a Connect worker, aren't members. known_members, coordinator_id, assignment: as of the last sync. Times are in ms. NULL: not pushed (librdkafka
-- pushes only assigned_partitions, rebalance_latency and commit_latency). member_ids: number of member ids so far, at
-- most ten; each is a new membership. Averages are means of the pushed averages. A last_heartbeat of -1 (none) is NULL.
WITH minutes AS (
  SELECT
    p.cluster_id,
    p.client_instance_id,
    p.minute,
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
  FROM counted_points AS p
  WHERE p.metric LIKE 'org.apache.kafka.consumer.coordinator.%'
  GROUP BY p.cluster_id, p.client_instance_id, p.minute
),

groups AS (
  SELECT
    cluster_id,
    group_id,
    max(group_type) AS group_type,
    max(coordinator_id) AS coordinator_id,
    count(*) AS known_members
  FROM consumer_group_members
  GROUP BY cluster_id, group_id
),

-- Those of whose members it isn't known which instance each is.
alike AS (
  SELECT DISTINCT cluster_id, group_id, client_id
  FROM consumer_group_members
  WHERE pushing AND client_instance_id IS NULL
)

SELECT
  m.cluster_id,
  nullif(element_at(c.labels, 'group_id'), '') AS group_id,
  m.minute,
  CASE
    WHEN element_at(c.labels, 'group_id') <> ''
      THEN count(coalesce(k.member_id, nullif(element_at(c.labels, 'group_member_id'), ''), a.client_id))
        OVER (PARTITION BY m.cluster_id, element_at(c.labels, 'group_id'), m.minute)
  END AS members,
  m.client_instance_id,
  c.client_id,
  c.application,
  c.owner,
  c.client_software_name,
  c.client_software_version,
  element_at(c.labels, 'group_instance_id') AS group_instance_id,
  coalesce(k.member_id, element_at(c.labels, 'group_member_id')) AS group_member_id,
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
  m.commits,
  g.group_type,
  g.coordinator_id,
  g.known_members,
  k.assignment
FROM minutes AS m
JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(m.cluster_id, '') AND c.client_instance_id = m.client_instance_id
LEFT JOIN groups AS g
  ON g.cluster_id = m.cluster_id AND g.group_id = element_at(c.labels, 'group_id')
LEFT JOIN consumer_group_members AS k
  ON k.cluster_id = m.cluster_id AND k.client_instance_id = m.client_instance_id
LEFT JOIN alike AS a
  ON a.cluster_id = m.cluster_id AND a.group_id = element_at(c.labels, 'group_id') AND a.client_id = c.client_id
UNION ALL
SELECT
  k.cluster_id,
  k.group_id,
  date_trunc('minute', k.since) AS minute,
  0 AS members,
  NULL AS client_instance_id,
  k.client_id,
  k.application,
  k.owner,
  NULL AS client_software_name,
  NULL AS client_software_version,
  k.group_instance_id,
  k.member_id AS group_member_id,
  NULL AS member_ids,
  NULL AS state,
  0 AS pushes,
  CAST(k.assigned_partitions AS DOUBLE) AS assigned_partitions,
  NULL AS rebalances,
  NULL AS failed_rebalances,
  NULL AS rebalance_latency_avg_ms,
  NULL AS rebalance_latency_max_ms,
  NULL AS rebalance_latency_ms,
  NULL AS join_time_avg_ms,
  NULL AS join_time_max_ms,
  NULL AS sync_time_avg_ms,
  NULL AS sync_time_max_ms,
  NULL AS heartbeats,
  NULL AS heartbeat_response_time_max_ms,
  NULL AS last_heartbeat_ago_max_s,
  NULL AS commit_latency_avg_ms,
  NULL AS commit_latency_max_ms,
  NULL AS commits,
  g.group_type,
  g.coordinator_id,
  g.known_members,
  k.assignment
FROM consumer_group_members AS k
JOIN groups AS g
  ON g.cluster_id = k.cluster_id AND g.group_id = k.group_id
WHERE NOT k.pushing
