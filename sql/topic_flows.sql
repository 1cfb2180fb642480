-- Which application writes a topic, and which one reads it? One row per topic, writer and reader, over all hours of the lake.
-- writer, reader: application, or the client id of a client that has none; of a group whose members aren't known the group
-- id; of a client without client id its instance id. NULL: nobody is known to write (or read) it, which telemetry can't exclude: view topic_clients says from what a client
-- is known, and which clients don't tell their topics. records and bytes: NULL if the library doesn't push them.
WITH ends AS (
  SELECT
    cluster_id,
    topic,
    role,
    coalesce(application, nullif(client_id, ''), group_id, client_instance_id) AS name,
    max(owner) AS owner,
    nullif(array_join(array_sort(array_distinct(collect_list(group_id))), ', '), '') AS groups,
    count(DISTINCT client_instance_id) AS instances,
    sum(records) AS records,
    sum(bytes) AS bytes,
    min(hour) AS first_hour,
    max(hour) AS last_hour
  FROM topic_clients
  WHERE topic IS NOT NULL
  GROUP BY cluster_id, topic, role, coalesce(application, nullif(client_id, ''), group_id, client_instance_id)
),

by_topic AS (
  SELECT
    cluster_id,
    topic,
    collect_list(struct(name, owner, groups, instances, records, bytes, first_hour, last_hour))
      FILTER (WHERE role = 'producer') AS writers,
    collect_list(struct(name, owner, groups, instances, records, bytes, first_hour, last_hour))
      FILTER (WHERE role = 'consumer') AS readers
  FROM ends
  GROUP BY cluster_id, topic
),

-- Not by a join of both ends: Spark would plan topic_clients, which is dear to plan, once for each.
written AS (
  SELECT cluster_id, topic, readers, explode(CASE WHEN size(writers) > 0 THEN writers ELSE array(NULL) END) AS w
  FROM by_topic
),

read AS (
  SELECT cluster_id, topic, w, explode(CASE WHEN size(readers) > 0 THEN readers ELSE array(NULL) END) AS r
  FROM written
)

SELECT
  cluster_id,
  topic,
  w.name AS writer,
  w.owner AS writer_owner,
  w.instances AS writer_instances,
  w.records AS records_written,
  w.bytes AS bytes_written,
  w.first_hour AS first_written,
  w.last_hour AS last_written,
  r.name AS reader,
  r.owner AS reader_owner,
  r.groups AS reader_groups,
  r.instances AS reader_instances,
  r.records AS records_read,
  r.bytes AS bytes_read,
  r.first_hour AS first_read,
  r.last_hour AS last_read
FROM read
