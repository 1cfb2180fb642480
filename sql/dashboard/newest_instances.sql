-- Which :top client instances pushed last?
SELECT client_instance_id, client_id
FROM (
  SELECT client_instance_id, client_id, last_push FROM chosen ORDER BY last_push DESC, client_instance_id LIMIT :top
) AS newest
ORDER BY last_push DESC, client_instance_id
