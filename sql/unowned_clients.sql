-- Which clients have no owner, and why? One row per client id and principal.
-- reason: what to do about it. addresses: up to three of them; NULL: unknown.
SELECT
  cluster_id,
  client_id,
  principal,
  application,
  CASE
    WHEN application IS NOT NULL THEN 'its alias or rule names no owner'
    WHEN owned_by IS NOT NULL THEN owned_by
    ELSE 'no alias or rule fits'
  END AS reason,
  count(*) AS instances,
  count(CASE WHEN state = 'active' THEN 1 END) AS active_instances,
  max(client_software_name) AS client_software_name,
  max(element_at(labels, 'group_id')) AS group_id,
  CASE WHEN max(client_address) <> '' THEN slice(sort_array(collect_set(nullif(client_address, ''))), 1, 3) END AS addresses,
  min(first_seen) AS first_seen,
  max(last_seen) AS last_seen
FROM clients
WHERE owner IS NULL
GROUP BY cluster_id, client_id, principal, application, owned_by
