-- Which clients are known, since when, in which state, and who owns them? One row per client instance.
-- An alias of the instance id takes precedence over one of the client id, and one of the cluster over one of any cluster.
SELECT
  cluster_id, client_instance_id, client_id, application, owner, client_software_name, client_software_version, principal,
  client_address, client_port, labels, group_member_ids, push_interval_ms, first_seen, last_seen, state, terminated_at,
  silent_at, pushes, missed_pushes, coverage, broker_id, brokers, resumptions, duplicated, source, topic, partition,
  offset, landed_at
FROM (
  SELECT
    c.*,
    coalesce(i.application, n.application) AS application,
    coalesce(i.owner, n.owner) AS owner,
    row_number() OVER (
      PARTITION BY c.cluster_id, c.client_instance_id
      ORDER BY c.step DESC, i.cluster_id DESC NULLS LAST, n.cluster_id DESC NULLS LAST
    ) AS age
  FROM client_changes AS c
  LEFT JOIN client_aliases AS i
    ON i.client_instance_id = c.client_instance_id AND i.valid_to IS NULL
    AND coalesce(i.cluster_id, c.cluster_id, '') = coalesce(c.cluster_id, '')
  LEFT JOIN client_aliases AS n
    ON n.client_instance_id IS NULL AND n.client_id = c.client_id AND n.valid_to IS NULL
    AND coalesce(n.cluster_id, c.cluster_id, '') = coalesce(c.cluster_id, '')
) AS known
WHERE age = 1
