-- Which clients does no quota limit? One row per client instance and quota type. exempted_by: the quota without a limit
-- that exempts the client; NULL: no quota matches. All clients of a cluster whose quotas were never synced are listed.
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
FROM client_quotas
WHERE quota_limit IS NULL
