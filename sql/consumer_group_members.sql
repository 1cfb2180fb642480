-- Who is in each consumer group, with which partitions, as of the last `telemetry-lake sync`? One row per member.
-- pushing: whether it pushes telemetry. client_instance_id: NULL if it doesn't, or if nobody knows which instance it is;
-- application and owner are then those of the alias of its client id, or of the first rule that fits its client id, group
-- and address (group_member_ownership). Members and clients are matched by member id. Clients that don't push theirs are
-- matched by group and client id: among several with the same ids it is a guess in the order of their addresses, and
-- unknown where these are. Java's clients push it as soon as they are members, so one that doesn't, such as a consumer
-- whose partitions were assigned by hand, is none.
WITH pushing AS (
  SELECT *, element_at(labels, 'group_id') AS group_id, element_at(labels, 'group_member_id') AS member_id
  FROM clients
  WHERE state = 'active' AND element_at(labels, 'group_id') IS NOT NULL
),

by_id AS (
  SELECT m.cluster_id, m.group_id, m.member_id, max(p.client_instance_id) AS client_instance_id
  FROM group_members AS m
  JOIN pushing AS p
    ON p.cluster_id = m.cluster_id AND p.group_id = m.group_id AND p.member_id = m.member_id
  WHERE m.valid_to IS NULL
  GROUP BY m.cluster_id, m.group_id, m.member_id
),

other_members AS (
  SELECT
    m.cluster_id,
    m.group_id,
    m.member_id,
    m.client_id,
    row_number() OVER (PARTITION BY m.cluster_id, m.group_id, m.client_id ORDER BY m.host, m.member_id) AS number,
    count(*) OVER (PARTITION BY m.cluster_id, m.group_id, m.client_id) AS alike
  FROM group_members AS m
  LEFT ANTI JOIN by_id AS b
    ON b.cluster_id = m.cluster_id AND b.group_id = m.group_id AND b.member_id = m.member_id
  WHERE m.valid_to IS NULL
),

other_clients AS (
  SELECT
    p.cluster_id,
    p.group_id,
    p.client_id,
    p.client_instance_id,
    row_number() OVER (
      PARTITION BY p.cluster_id, p.group_id, p.client_id ORDER BY p.client_address, p.client_instance_id
    ) AS number,
    count(*) OVER (PARTITION BY p.cluster_id, p.group_id, p.client_id) AS alike,
    p.client_address <> '' AS has_address
  FROM pushing AS p
  LEFT ANTI JOIN by_id AS b
    ON b.cluster_id = p.cluster_id AND b.client_instance_id = p.client_instance_id
  WHERE p.member_id IS NOT NULL OR p.library <> 'java'
),

known AS (
  SELECT cluster_id, group_id, member_id, client_instance_id
  FROM by_id
  UNION ALL
  SELECT
    m.cluster_id,
    m.group_id,
    m.member_id,
    CASE WHEN c.has_address OR c.alike = 1 AND m.alike = 1 THEN c.client_instance_id END AS client_instance_id
  FROM other_members AS m
  JOIN other_clients AS c
    ON c.cluster_id = m.cluster_id AND c.group_id = m.group_id AND c.client_id = m.client_id AND c.number = m.number
)

SELECT
  m.cluster_id,
  m.group_id,
  s.group_type,
  s.state AS group_state,
  s.protocol,
  s.coordinator_id,
  s.coordinator,
  m.member_id,
  m.client_id,
  CASE WHEN p.client_instance_id IS NULL THEN m.application ELSE p.application END AS application,
  CASE WHEN p.client_instance_id IS NULL THEN m.owner ELSE p.owner END AS owner,
  m.host,
  m.group_instance_id,
  m.assignment,
  size(m.assignment) AS assigned_partitions,
  m.valid_from AS since,
  k.client_instance_id,
  k.member_id IS NOT NULL AS pushing
FROM group_member_ownership AS m
LEFT JOIN group_states AS s
  ON s.cluster_id = m.cluster_id AND s.group_id = m.group_id AND s.valid_to IS NULL
LEFT JOIN known AS k
  ON k.cluster_id = m.cluster_id AND k.group_id = m.group_id AND k.member_id = m.member_id
LEFT JOIN pushing AS p
  ON p.cluster_id = k.cluster_id AND p.client_instance_id = k.client_instance_id
