-- Which clients has no quota a hold on? One row per client instance and quota type; exempted_by names the quota without a
-- limit that exempts it, NULL: no quota matches.
-- Of a cluster whose quotas were never synced nothing is known: all its clients are here.
SELECT
  cluster_id,
  client_instance_id,
  client_id,
  user,
  state,
  quota_type,
  CASE WHEN level IS NOT NULL THEN concat('user=', quota_user, ' client-id=', quota_client_id) END AS exempted_by,
  valid_from AS exempted_since
FROM client_quotas
WHERE quota_limit IS NULL
