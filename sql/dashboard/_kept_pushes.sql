-- Which client instances pushed, when and with which attributes? A row of each push, and one of each that names a group,
-- without the push's attributes: what question `instances` sums up.
SELECT
  cluster_id, client_instance_id, client_id, client_software_name, client_software_version, principal, client_address,
  CAST(NULL AS STRING) AS group_id, push_interval_ms, terminating, landed_at, TRUE AS is_push
FROM pushes
WHERE client_instance_id IS NOT NULL AND landed_at IS NOT NULL

UNION ALL

SELECT cluster_id, client_instance_id, NULL, NULL, NULL, NULL, NULL, labels['group_id'], NULL, NULL, landed_at, FALSE
FROM push_outcomes
WHERE client_instance_id IS NOT NULL AND landed_at IS NOT NULL AND labels['group_id'] IS NOT NULL
