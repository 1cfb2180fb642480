-- Which :top client instances are silent for longest? Silent as in `silence`.
SELECT cluster_id, client_instance_id, last_push
FROM (
  SELECT cluster_id, client_instance_id, last_push
  FROM chosen
  WHERE NOT terminated AND unix_micros(CAST(:stop AS TIMESTAMP)) - unix_micros(last_push)
    > greatest(60000000, 3000 * coalesce(push_interval_ms, 0))
  ORDER BY last_push, client_instance_id, cluster_id
  LIMIT :top
) AS longest
ORDER BY last_push, client_instance_id, cluster_id
