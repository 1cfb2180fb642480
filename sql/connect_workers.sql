-- Which workers of Kafka Connect are there, and what do they run? One row per worker group and address.
-- A worker is known by the consumers of its three internal topics, which have its group.id and the client ids
-- `<group.id>-configs`, `-offsets` and `-statuses` (Connect puts its own client.id between both, if it is set). workers:
-- active workers of the group at that address. connectors, tasks: those with an active client there; NULL if the address
-- is unknown, or workers of several groups are, or were, there, since a connector's clients don't name their worker. Behind
-- a proxy that passes requests on, all workers have the proxy's address: one row a group.
WITH internal AS (
  SELECT * EXCEPT (client_address), nullif(client_address, '') AS client_address, element_at(labels, 'group_id') AS worker_group
  FROM clients
  WHERE element_at(labels, 'group_id') IS NOT NULL
    AND startswith(client_id, concat(element_at(labels, 'group_id'), '-'))
    AND regexp_like(client_id, '-(configs|offsets|statuses)$')
),

workers AS (
  SELECT
    cluster_id,
    worker_group,
    client_address,
    count(DISTINCT regexp_extract(client_id, '-([a-z]+)$', 1)) AS topics,
    count(CASE WHEN client_id LIKE '%-configs' AND state = 'active' THEN 1 END) AS workers,
    max(client_software_version) AS client_software_version,
    min(first_seen) AS first_seen,
    max(last_seen) AS last_seen
  FROM internal
  GROUP BY cluster_id, worker_group, client_address
),

tasks AS (
  SELECT
    cluster_id,
    client_address,
    count(DISTINCT regexp_extract(client_id, '^connector-(dlq-)?(producer|consumer)-(.+)-[0-9]+$', 3)) AS connectors,
    count(DISTINCT regexp_extract(client_id, '^connector-(dlq-)?(producer|consumer)-(.+-[0-9]+)$', 3)) AS tasks
  FROM clients
  WHERE state = 'active' AND regexp_like(client_id, '^connector-(dlq-)?(producer|consumer)-.+-[0-9]+$')
  GROUP BY cluster_id, client_address
),

alone AS (
  SELECT
    *,
    CASE WHEN client_address IS NOT NULL THEN count(*) OVER (PARTITION BY cluster_id, client_address) END
      AS groups_of_address
  FROM workers
  WHERE topics = 3
)

SELECT
  w.cluster_id,
  w.worker_group,
  w.client_address,
  w.workers,
  CASE WHEN w.groups_of_address = 1 THEN coalesce(t.connectors, 0) END AS connectors,
  CASE WHEN w.groups_of_address = 1 THEN coalesce(t.tasks, 0) END AS tasks,
  w.client_software_version,
  w.first_seen,
  w.last_seen,
  w.groups_of_address
FROM alone AS w
LEFT JOIN tasks AS t
  ON coalesce(t.cluster_id, '') = coalesce(w.cluster_id, '') AND t.client_address = w.client_address
