-- Which client ids pushed with one of these libraries, in these clusters?
SELECT DISTINCT client_id
FROM pushes
WHERE landed_at >= :start AND landed_at < :stop AND client_instance_id IS NOT NULL AND client_id IS NOT NULL
  AND array_contains(:software, client_software_name) AND array_contains(:clusters, coalesce(cluster_id, ''))
ORDER BY client_id
