-- Which client instance pushed most often? Of several the first by client id.
SELECT client_instance_id
FROM (
  SELECT client_instance_id, client_id, pushes FROM chosen ORDER BY pushes DESC, client_id, client_instance_id LIMIT 1
) AS busiest
