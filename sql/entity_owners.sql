-- Whose are the clients of a user, a client id, or both? One row per cluster and quota entity: a user with all client ids
-- (client_id is empty), a client id with all users (user is empty), and each pair that a client instance has had.
-- application, owner: those of all its client instances, separated by commas; NULL: no instance has one.
WITH named AS (
  SELECT
    cluster_id,
    application,
    owner,
    CASE WHEN part = 'client id' THEN '' ELSE coalesce(substr(principal, instr(principal, ':') + 1), '') END AS user,
    CASE WHEN part = 'user' THEN '' ELSE coalesce(client_id, '') END AS client_id
  FROM clients
  LATERAL VIEW explode(array('user', 'client id', 'both')) AS part
)

SELECT
  cluster_id,
  user,
  client_id,
  nullif(array_join(array_sort(array_distinct(collect_list(application))), ', '), '') AS application,
  nullif(array_join(array_sort(array_distinct(collect_list(owner))), ', '), '') AS owner
FROM named
WHERE user || client_id <> ''
GROUP BY cluster_id, user, client_id
