-- Which share of the connections is of clients that push, by software and version, and why don't the others? One row per
-- cluster, listener and software, of the latest report of each broker within five minutes of the cluster's newest.
-- A client has one connection or more to each broker that it talks to, and pushes over one of them. So nobody can count
-- the clients that push nothing; these are the bounds. pushing_instances: active client instances. pushing_connections: at
-- least so many connections are theirs, as many as a Java client says in its last push (connection.count), else one.
-- silent_connections: at least so many are of clients that push nothing. The others may be of pushing instances, which
-- have at most one connection to each broker and three more, or, of Java's software, the brokers' own: up to six times
-- the square of the brokers. share_at_least, share_at_most: of the connections, 0 to 1. A row without a software name has
-- the connections that brokers report no name of. connections: NULL if no broker reports the software, as behind a proxy
-- that receives the pushes itself. cut_off_instances: silent ones whose last push was lost for its size, or near
-- telemetry.max.bytes.
-- likely_reason, the first that applies: no_support (the version of the library can't push, or the client sends no name at
-- all), no_subscription (none that is known may match the software, and nobody pushes), cut_off, other_connections (all of
-- the rest may be other connections of pushing instances and brokers), unknown (of another library), switched_off (it can
-- push and is asked to: enable.metrics.push=false, or it was closed less than a push interval ago). NULL: all push, or
-- nothing is reported.
WITH latest AS (
  SELECT
    cluster_id,
    broker_id,
    max(reported_at) AS reported_at,
    max(max(reported_at)) OVER (PARTITION BY cluster_id) AS newest
  FROM broker_connections
  GROUP BY cluster_id, broker_id
),

-- A report that landed twice counts once.
reports AS (
  SELECT
    b.cluster_id,
    b.broker_id,
    b.reported_at,
    b.listener,
    b.client_software_name,
    b.client_software_version,
    max(b.connections) AS connections
  FROM broker_connections AS b
  JOIN latest AS l
    ON l.cluster_id <=> b.cluster_id AND l.broker_id <=> b.broker_id AND l.reported_at = b.reported_at
  WHERE l.reported_at >= l.newest - INTERVAL '5' MINUTE
  GROUP BY
    b.cluster_id, b.broker_id, b.reported_at, b.listener, b.client_software_name, b.client_software_version
),

cluster_brokers AS (
  SELECT cluster_id, count(DISTINCT broker_id) AS brokers
  FROM reports
  GROUP BY cluster_id
),

-- The last push of each instance that is active, or that fell silent.
last_pushes AS (
  SELECT
    c.cluster_id,
    p.listener,
    c.client_software_name,
    c.client_software_version,
    c.client_instance_id,
    c.state,
    o.decompressed_bytes,
    p.dropped,
    c.source, c.topic, c.partition, c.offset, c.landed_at
  FROM clients AS c
  JOIN pushes AS p
    ON p.source = c.source AND p.topic = c.topic AND p.partition = c.partition AND p.offset = c.offset
    AND p.landed_at = c.landed_at
  LEFT JOIN push_outcomes AS o
    ON o.source = c.source AND o.topic = c.topic AND o.partition = c.partition AND o.offset = c.offset
    AND o.landed_at = c.landed_at
  WHERE c.state IN ('active', 'silent')
),

said AS (
  SELECT l.cluster_id, l.client_instance_id, CAST(max(m.value) AS BIGINT) AS connections
  FROM last_pushes AS l
  JOIN metric_points AS m
    ON m.source = l.source AND m.topic = l.topic AND m.partition = l.partition AND m.offset = l.offset
    AND m.landed_at = l.landed_at
  WHERE l.state = 'active' AND m.metric LIKE 'org.apache.kafka.%.connection.count'
  GROUP BY l.cluster_id, l.client_instance_id
),

counted AS (
  SELECT
    cluster_id, listener, client_software_name, client_software_version, broker_id, reported_at, connections,
    0 AS pushing, 0 AS said, 0 AS unsaid, 0 AS cut_off
  FROM reports

  UNION ALL

  SELECT
    l.cluster_id, l.listener, l.client_software_name, l.client_software_version, NULL, NULL, NULL,
    1, CASE WHEN s.connections > 1 THEN s.connections WHEN s.connections IS NOT NULL THEN 1 ELSE 0 END,
    CASE WHEN s.connections IS NULL THEN 1 ELSE 0 END, 0
  FROM last_pushes AS l
  LEFT JOIN said AS s
    ON s.cluster_id <=> l.cluster_id AND s.client_instance_id = l.client_instance_id
  WHERE l.state = 'active'

  UNION ALL

  SELECT
    cluster_id, listener, client_software_name, client_software_version, NULL, NULL, NULL, 0, 0, 0, 1
  FROM last_pushes
  WHERE state = 'silent' AND (dropped = 'too_large' OR decompressed_bytes >= 838861)
),

software AS (
  SELECT
    cluster_id, listener, client_software_name, client_software_version,
    count(DISTINCT broker_id) AS reporting_brokers,
    max(reported_at) AS reported_at,
    CAST(sum(connections) AS BIGINT) AS connections,
    CAST(sum(pushing) AS BIGINT) AS pushing_instances,
    CAST(sum(said) AS BIGINT) AS said,
    CAST(sum(unsaid) AS BIGINT) AS unsaid,
    CAST(sum(cut_off) AS BIGINT) AS cut_off_instances
  FROM counted
  GROUP BY cluster_id, listener, client_software_name, client_software_version
),

named AS (
  SELECT *, :library_number AS library_number
  FROM (
    SELECT *, :library AS library, :library_version AS library_version
    FROM software
  ) AS s
),

pushing_from AS (
  SELECT library, pushes_number
  FROM VALUES
    :rows
  AS t(library, pushes_number)
),

-- Subscriptions that are in force and ask for something. A pattern is looked at if it reads the same to all engines.
asking AS (
  SELECT
    cluster_id,
    element_at(match, 'client_software_name') AS name_pattern,
    element_at(match, 'client_software_version') AS version_pattern
  FROM subscriptions
  WHERE valid_to IS NULL AND coalesce(size(metrics), 1) > 0
),

known_subscriptions AS (
  SELECT DISTINCT cluster_id
  FROM subscriptions
),

asked AS (
  SELECT DISTINCT n.cluster_id, n.client_software_name, n.client_software_version
  FROM named AS n
  JOIN asking AS a
    ON a.cluster_id = n.cluster_id
    AND CASE
      WHEN a.name_pattern RLIKE '^([A-Za-z0-9-]|[.][*]?)+$' THEN n.client_software_name RLIKE concat('^(?:', a.name_pattern, ')$')
      ELSE TRUE
    END
    AND CASE
      WHEN a.version_pattern RLIKE '^([A-Za-z0-9-]|[.][*]?)+$'
        THEN n.client_software_version RLIKE concat('^(?:', a.version_pattern, ')$')
      ELSE TRUE
    END
),

bounded AS (
  SELECT
    n.*,
    b.brokers,
    n.said + n.unsaid AS pushing_connections,
    CASE
      WHEN n.connections > n.said + n.unsaid * (b.brokers + 3)
        + CASE WHEN n.library = 'java' THEN 6 * b.brokers * b.brokers ELSE 0 END
        THEN n.connections - n.said - n.unsaid * (b.brokers + 3)
          - CASE WHEN n.library = 'java' THEN 6 * b.brokers * b.brokers ELSE 0 END
      WHEN n.connections IS NOT NULL THEN 0
    END AS silent_connections,
    n.client_software_name = 'unknown' OR coalesce(n.library_number < f.pushes_number, FALSE)
      OR coalesce(f.pushes_number = :never, FALSE) AS cannot_push,
    k.cluster_id IS NOT NULL AND a.cluster_id IS NULL AS unasked
  FROM named AS n
  LEFT JOIN cluster_brokers AS b
    ON b.cluster_id <=> n.cluster_id
  LEFT JOIN pushing_from AS f
    ON f.library = n.library
  LEFT JOIN known_subscriptions AS k
    ON k.cluster_id = n.cluster_id
  LEFT JOIN asked AS a
    ON a.cluster_id = n.cluster_id AND a.client_software_name <=> n.client_software_name
    AND a.client_software_version <=> n.client_software_version
)

SELECT
  cluster_id,
  listener,
  client_software_name,
  client_software_version,
  library,
  library_version,
  reported_at,
  reporting_brokers,
  connections,
  pushing_instances,
  pushing_connections,
  silent_connections,
  CASE WHEN pushing_connections >= connections THEN 1.0 ELSE CAST(pushing_connections AS DOUBLE) / connections END
    AS share_at_least,
  CASE WHEN connections > 0 THEN 1.0 - CAST(silent_connections AS DOUBLE) / connections END AS share_at_most,
  cut_off_instances,
  CASE
    WHEN connections IS NULL OR pushing_connections >= connections THEN NULL
    WHEN client_software_name IS NULL THEN 'unknown'
    WHEN cannot_push THEN 'no_support'
    WHEN unasked AND pushing_instances = 0 THEN 'no_subscription'
    WHEN cut_off_instances > 0 THEN 'cut_off'
    WHEN silent_connections = 0 THEN 'other_connections'
    WHEN library = 'unknown' THEN 'unknown'
    ELSE 'switched_off'
  END AS likely_reason
FROM bounded
WHERE client_software_name IS NOT NULL OR connections > 0 OR pushing_instances > 0
