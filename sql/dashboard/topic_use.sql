-- Which clients wrote and read which topic in the time range, and how much? One row per topic, role, application, client id
-- and group. Records and bytes are those that Java clients push per topic. A group of the topic that `telemetry-lake sync`
-- saw, and of which no client pushes about it, has a row without them. Consumers before 4.1 write a dot in a topic as _ too
-- (KIP-1109): the row has the topic's own name, once. Bytes are compressed if written, decompressed if read.
-- The largest row of each topic, role and group comes first: if there are too many rows, no topic and no group is missing.
WITH points AS (
  SELECT
    cluster_id,
    client_instance_id,
    coalesce(client_id, '') AS client_id,
    CASE WHEN metric LIKE 'org.apache.kafka.producer.%' THEN 'written' ELSE 'read' END AS role,
    element_at(attributes, 'topic') AS topic,
    sum(CASE WHEN metric LIKE '%record%' THEN delta END) AS records,
    sum(CASE WHEN metric LIKE '%byte%' THEN delta END) AS bytes
  FROM metric_points
  WHERE metric IN (
    'org.apache.kafka.producer.topic.record.send.total', 'org.apache.kafka.producer.topic.byte.total',
    'org.apache.kafka.consumer.fetch.manager.records.consumed.total',
    'org.apache.kafka.consumer.fetch.manager.bytes.consumed.total',
    'org.apache.kafka.consumer.share.fetch.manager.records.consumed.total',
    'org.apache.kafka.consumer.share.fetch.manager.bytes.consumed.total'
  )
    AND landed_at >= :start AND landed_at < :stop AND element_at(attributes, 'topic') IS NOT NULL
    AND delta_status NOT IN ('duplicate', 'conflict', 'too_late')
    AND client_instance_id IN (SELECT client_instance_id FROM chosen)
  GROUP BY 1, 2, 3, 4, 5
),

-- By what `sync` saw: topics that a group commits offsets of, or that its members are assigned.
synced AS (
  SELECT cluster_id, topic, group_id
  FROM (
    SELECT cluster_id, topic, group_id FROM group_offsets
    UNION ALL
    SELECT cluster_id, regexp_replace(partition, '-[0-9]+$', '') AS topic, group_id
    FROM (SELECT *, explode(assignment) AS partition FROM group_members WHERE valid_to IS NULL AND size(assignment) > 0)
      AS assigned
  ) AS seen
  WHERE :filters = 0 OR group_id IN (SELECT group_id FROM chosen)
  GROUP BY cluster_id, topic, group_id
),

-- Names with a dot, and how older consumers write them. Brokers refuse topics that differ in nothing else.
dotted AS (
  SELECT cluster_id, translate(topic, '.', '_') AS pushed, max(topic) AS topic
  FROM (SELECT cluster_id, topic FROM points UNION ALL SELECT cluster_id, topic FROM synced) AS names
  WHERE topic LIKE '%.%'
  GROUP BY cluster_id, translate(topic, '.', '_')
),

named AS (
  SELECT
    p.*,
    coalesce(d.topic, p.topic) AS own_topic,
    max(CASE WHEN d.topic IS NULL THEN 1 ELSE 0 END) OVER (
      PARTITION BY p.cluster_id, p.client_instance_id, p.role, coalesce(d.topic, p.topic)
    ) AS has_own_name
  FROM points AS p
  LEFT JOIN dotted AS d
    ON d.cluster_id <=> p.cluster_id AND d.pushed = p.topic AND p.role = 'read'
),

pushed AS (
  SELECT
    n.cluster_id,
    n.own_topic AS topic,
    n.role,
    c.application,
    n.client_id,
    CASE WHEN n.role = 'read' THEN element_at(c.labels, 'group_id') END AS group_id,
    sum(n.records) AS records,
    sum(n.bytes) AS bytes
  FROM named AS n
  LEFT JOIN clients AS c
    ON coalesce(c.cluster_id, '') = coalesce(n.cluster_id, '') AND c.client_instance_id = n.client_instance_id
  WHERE n.topic = n.own_topic OR n.has_own_name = 0
  GROUP BY 1, 2, 3, 4, 5, 6
),

-- Whose the groups are of which no client pushes about the topic: of the members that the last sync saw.
members AS (
  SELECT
    cluster_id,
    group_id,
    nullif(array_join(array_sort(array_distinct(collect_list(application))), ', '), '') AS application
  FROM group_member_ownership
  GROUP BY cluster_id, group_id
)

SELECT topic, role, application, client_id, group_id, records, bytes
FROM (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY topic, role, group_id ORDER BY bytes DESC NULLS LAST, records DESC NULLS LAST, application, client_id
    ) AS place
  FROM (
    SELECT topic, role, application, client_id, group_id, records, bytes
    FROM pushed
    UNION ALL
    SELECT o.topic, 'read', m.application, NULL, o.group_id, NULL, NULL
    FROM synced AS o
    LEFT ANTI JOIN pushed AS p
      ON coalesce(p.cluster_id, '') = coalesce(o.cluster_id, '') AND p.topic = o.topic AND p.group_id = o.group_id
    LEFT JOIN members AS m
      ON m.cluster_id <=> o.cluster_id AND m.group_id = o.group_id
  ) AS used
) AS placed
ORDER BY
  CASE WHEN place = 1 THEN 0 ELSE 1 END, bytes DESC NULLS LAST, records DESC NULLS LAST, topic, role, application,
  client_id, group_id
