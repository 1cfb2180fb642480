-- Which clients does no quota limit? One row per client instance and quota type. exempted_by: the quota without a limit
-- that exempts the client; NULL: no quota matches. A client whose principal is unknown, or stored hashed, isn't here if its cluster has quotas
-- of users, since one of them may apply. All clients of a cluster whose quotas were never synced are listed.
SELECT
  cluster_id,
  client_instance_id,
  client_id,
  user,
  application,
  owner,
  state,
  quota_type,
  CASE WHEN level IS NOT NULL THEN concat('user=', quota_user, ' client-id=', quota_client_id) END AS exempted_by,
  valid_from AS exempted_since
FROM client_quotas AS c
WHERE quota_limit IS NULL
  AND NOT (
    client_instance_id IN (SELECT client_instance_id FROM clients WHERE coalesce(instr(principal, ':'), 0) = 0)
    AND EXISTS (
      SELECT 1
      FROM quotas AS q
      WHERE q.cluster_id = c.cluster_id AND q.quota_type = c.quota_type AND q.valid_to IS NULL AND q.user <> ''
    )
  )
