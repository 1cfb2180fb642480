-- Who produces to which topic and who consumes it, with records, bytes, compression, errors and lag? One row per topic,
-- role, client and hour (of the points' times). known_from: telemetry; group (a member or a group that `telemetry-lake sync`
-- saw, and whose client pushes nothing about the topic; hour: when the assignment was first seen); quota (brokers measured
-- bytes of a client id or user that pushes nothing). topic is NULL where nobody says it: librdkafka and franz-go push
-- nothing per topic, brokers measure bytes per client. client_id is NULL for a group without known members. bytes: of
-- record batches as sent; of consumers as fetched; of quota the mean rate by the time. records_per_s, bytes_per_s: over the
-- time that the increases cover (covered_s). compression_ratio: compressed by uncompressed size. records_lag_max: of a
-- partition, in offsets, so at most so many records. Java consumers write a dot in a topic as _ too (KIP-1109): the row has the topic's own name, once.
WITH points AS (
  SELECT
    cluster_id,
    client_instance_id,
    date_trunc('hour', time) AS hour,
    CASE WHEN metric LIKE 'org.apache.kafka.producer.%' THEN 'producer' ELSE 'consumer' END AS role,
    element_at(attributes, 'topic') AS written,
    metric LIKE '%.records.consumed.total' OR metric LIKE '%.record.send.total' AS of_records,
    metric LIKE '%.bytes.consumed.total' OR metric LIKE '%.topic.byte.total' AS of_bytes,
    metric,
    value,
    delta,
    (unix_micros(time) - unix_micros(delta_start)) / 1e6 AS covered_s
  FROM metric_points
  WHERE metric IN (
    'org.apache.kafka.producer.topic.record.send.total', 'org.apache.kafka.producer.topic.byte.total',
    'org.apache.kafka.producer.topic.record.error.total', 'org.apache.kafka.producer.topic.record.retry.total',
    'org.apache.kafka.producer.topic.compression.rate',
    'org.apache.kafka.consumer.fetch.manager.records.consumed.total',
    'org.apache.kafka.consumer.fetch.manager.bytes.consumed.total',
    'org.apache.kafka.consumer.fetch.manager.records.lag',
    'org.apache.kafka.consumer.share.fetch.manager.records.consumed.total',
    'org.apache.kafka.consumer.share.fetch.manager.bytes.consumed.total'
  )
    AND element_at(attributes, 'topic') IS NOT NULL
    AND delta_status NOT IN ('duplicate', 'conflict', 'too_late')
),

written AS (
  SELECT
    cluster_id,
    client_instance_id,
    hour,
    role,
    written,
    sum(CASE WHEN of_records THEN delta END) AS records,
    sum(CASE WHEN of_bytes THEN delta END) AS bytes,
    sum(CASE WHEN of_records AND delta IS NOT NULL THEN covered_s END) AS covered_s,
    sum(CASE WHEN of_bytes AND delta IS NOT NULL THEN covered_s END) AS bytes_covered_s,
    avg(CASE WHEN metric = 'org.apache.kafka.producer.topic.compression.rate' THEN value END) AS compression_ratio,
    sum(CASE WHEN metric = 'org.apache.kafka.producer.topic.record.error.total' THEN delta END) AS record_errors,
    sum(CASE WHEN metric = 'org.apache.kafka.producer.topic.record.retry.total' THEN delta END) AS record_retries,
    max(CASE WHEN metric = 'org.apache.kafka.consumer.fetch.manager.records.lag' THEN value END) AS records_lag_max
  FROM points
  GROUP BY cluster_id, client_instance_id, hour, role, written
),

members AS (
  SELECT
    cluster_id,
    group_id,
    client_id,
    application,
    owner,
    client_instance_id,
    date_trunc('hour', since) AS hour,
    regexp_replace(partition, '-[0-9]+$', '') AS topic
  FROM (SELECT *, explode(assignment) AS partition FROM consumer_group_members WHERE size(assignment) > 0) AS assigned
),

-- Names with a dot, and how older consumers write them. Brokers refuse topics that differ in nothing else.
dotted AS (
  SELECT cluster_id, translate(topic, '.', '_') AS written, max(topic) AS topic
  FROM (
    SELECT cluster_id, written AS topic FROM written
    UNION ALL
    SELECT cluster_id, topic FROM members
    UNION ALL
    SELECT cluster_id, topic FROM group_offsets
  ) AS names
  WHERE topic LIKE '%.%'
  GROUP BY cluster_id, translate(topic, '.', '_')
),

told AS (
  SELECT
    w.*,
    coalesce(d.topic, w.written) AS topic,
    max(CASE WHEN w.written = coalesce(d.topic, w.written) THEN 1 ELSE 0 END) OVER (
      PARTITION BY w.cluster_id, w.client_instance_id, w.role, coalesce(d.topic, w.written)
    ) AS has_own_name
  FROM written AS w
  LEFT JOIN dotted AS d
    ON d.cluster_id <=> w.cluster_id AND d.written = w.written AND w.role = 'consumer'
),

by_topic AS (
  SELECT * FROM told WHERE written = topic OR has_own_name = 0
),

groups_by_topic AS (
  SELECT t.cluster_id, t.topic, c.client_id, c.state, element_at(c.labels, 'group_id') AS group_id
  FROM by_topic AS t
  JOIN clients AS c
    ON coalesce(c.cluster_id, '') = coalesce(t.cluster_id, '') AND c.client_instance_id = t.client_instance_id
),

-- Pushed by every library.
pushing AS (
  SELECT
    cluster_id,
    client_instance_id,
    date_trunc('hour', time) AS hour,
    CASE WHEN metric LIKE 'org.apache.kafka.producer.%' THEN 'producer' ELSE 'consumer' END AS role
  FROM metric_points
  WHERE metric IN (
    'org.apache.kafka.producer.connection.creation.total', 'org.apache.kafka.consumer.connection.creation.total',
    'org.apache.kafka.producer.node.request.latency.avg', 'org.apache.kafka.consumer.node.request.latency.avg'
  )
  GROUP BY 1, 2, 3, 4
),

silent_about_topics AS (
  SELECT p.*
  FROM pushing AS p
  LEFT ANTI JOIN by_topic AS t
    ON t.cluster_id <=> p.cluster_id AND t.client_instance_id = p.client_instance_id AND t.role = p.role
  LEFT ANTI JOIN members AS m
    ON m.cluster_id <=> p.cluster_id AND m.client_instance_id = p.client_instance_id AND p.role = 'consumer'
),

-- What brokers measured of client ids and users of whom no client has ever pushed.
measured AS (
  SELECT
    u.cluster_id,
    date_trunc('hour', u.window_start) AS hour,
    CASE u.quota_type WHEN 'produce' THEN 'producer' ELSE 'consumer' END AS role,
    u.user,
    u.client_id,
    sum(u.observed_rate * u.window_seconds) AS bytes,
    sum(CASE WHEN u.observed_rate IS NOT NULL THEN u.window_seconds END) AS covered_s
  FROM quota_usage AS u
  LEFT ANTI JOIN (
    SELECT
      cluster_id, client_id, substr(principal, instr(principal, ':') + 1) AS user,
      coalesce(instr(principal, ':'), 0) = 0 AS user_is_hidden  -- it is stored hashed, or not at all
    FROM clients
  ) AS c
    ON c.cluster_id <=> u.cluster_id AND (u.client_id = '' OR u.client_id = c.client_id)
    AND (u.user = '' OR u.user = c.user OR u.client_id <> '' AND c.user_is_hidden)
  WHERE u.source = 'broker' AND u.window_seconds = 60 AND u.quota_type IN ('produce', 'fetch')
    AND u.client_id || u.user <> ''
  GROUP BY 1, 2, 3, 4, 5
  HAVING sum(u.observed_rate) > 0
),

found AS (
  SELECT
    cluster_id, topic, role, hour, client_instance_id, 'telemetry' AS known_from, CAST(NULL AS STRING) AS group_id,
    CAST(NULL AS STRING) AS client_id, CAST(NULL AS STRING) AS application, CAST(NULL AS STRING) AS owner,
    CAST(NULL AS STRING) AS principal, records, bytes, covered_s, records / nullif(covered_s, 0) AS records_per_s,
    bytes / nullif(bytes_covered_s, 0) AS bytes_per_s, compression_ratio, record_errors, record_retries, records_lag_max
  FROM by_topic
  UNION ALL
  SELECT
    cluster_id, NULL, role, hour, client_instance_id, 'telemetry', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL
  FROM silent_about_topics
  UNION ALL
  SELECT
    m.cluster_id, m.topic, 'consumer', m.hour, m.client_instance_id, 'group', m.group_id, m.client_id, m.application,
    m.owner, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM members AS m
  LEFT ANTI JOIN by_topic AS t
    ON t.cluster_id <=> m.cluster_id AND t.client_instance_id = m.client_instance_id AND t.topic = m.topic
  -- The last sync may have seen a client that has ended since.
  LEFT ANTI JOIN groups_by_topic AS b
    ON b.cluster_id <=> m.cluster_id AND b.group_id = m.group_id AND b.topic = m.topic AND b.client_id = m.client_id
    AND b.state <> 'active' AND m.client_instance_id IS NULL
  GROUP BY m.cluster_id, m.topic, m.hour, m.client_instance_id, m.group_id, m.client_id, m.application, m.owner
  UNION ALL
  SELECT
    o.cluster_id, o.topic, 'consumer', date_trunc('hour', max(o.seen_at)), NULL, 'group', o.group_id, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM group_offsets AS o
  LEFT ANTI JOIN members AS m
    ON m.cluster_id <=> o.cluster_id AND m.group_id = o.group_id AND m.topic = o.topic
  LEFT ANTI JOIN groups_by_topic AS b
    ON b.cluster_id <=> o.cluster_id AND b.group_id = o.group_id AND b.topic = o.topic
  GROUP BY o.cluster_id, o.topic, o.group_id
  UNION ALL
  SELECT
    cluster_id, NULL, role, hour, NULL, 'quota', NULL, nullif(client_id, ''), NULL, NULL,
    'User:' || nullif(user, ''), NULL, bytes, covered_s, NULL, bytes / nullif(covered_s, 0), NULL, NULL, NULL, NULL
  FROM measured
)

SELECT
  f.cluster_id,
  f.topic,
  f.role,
  f.hour,
  f.known_from,
  f.client_instance_id,
  coalesce(c.client_id, f.client_id) AS client_id,
  coalesce(c.application, f.application) AS application,
  coalesce(c.owner, f.owner) AS owner,
  coalesce(c.principal, f.principal) AS principal,
  c.client_software_name,
  c.client_software_version,
  CASE WHEN f.role = 'consumer' THEN coalesce(f.group_id, element_at(c.labels, 'group_id')) END AS group_id,
  f.records,
  f.bytes,
  f.covered_s,
  f.records_per_s,
  f.bytes_per_s,
  f.compression_ratio,
  f.record_errors,
  f.record_retries,
  f.records_lag_max
FROM found AS f
LEFT JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(f.cluster_id, '') AND c.client_instance_id = f.client_instance_id
