-- Who uses which client id, since when, and is it somebody else's too? One row per client id, application and owner.
-- shared_with: other applications and owners whose instances used the client id in the same time. reused_from: those whose
-- last instance was gone before. Nobody guesses whose such a client id is: each instance counts for its own.
WITH used AS (
  SELECT
    cluster_id, client_id, application, owner,
    concat(coalesce(application, 'no application'), ' of ', coalesce(owner, 'nobody')) AS name,
    count(*) AS instances,
    count(CASE WHEN state = 'active' THEN 1 END) AS active_instances,
    min(first_seen) AS first_seen,
    max(last_seen) AS last_seen
  FROM clients
  GROUP BY cluster_id, client_id, application, owner
)

SELECT
  u.cluster_id, u.client_id, u.application, u.owner, u.instances, u.active_instances, u.first_seen, u.last_seen,
  coalesce(
    sort_array(collect_set(CASE WHEN o.last_seen >= u.first_seen AND o.first_seen <= u.last_seen THEN o.name END)),
    array()
  ) AS shared_with,
  coalesce(sort_array(collect_set(CASE WHEN o.last_seen < u.first_seen THEN o.name END)), array()) AS reused_from
FROM used AS u
LEFT JOIN used AS o
  ON coalesce(o.cluster_id, '') = coalesce(u.cluster_id, '') AND o.client_id = u.client_id AND u.client_id <> '' AND o.name <> u.name
GROUP BY
  u.cluster_id, u.client_id, u.application, u.owner, u.instances, u.active_instances, u.first_seen, u.last_seen
