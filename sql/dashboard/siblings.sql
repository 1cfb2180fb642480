-- Which instances has a client id? The :top with the latest pushes.
SELECT client_instance_id, client_id
FROM (
  SELECT client_instance_id, client_id, last_push
  FROM chosen
  WHERE client_id = :client AND client_instance_id IN (
    SELECT client_instance_id
    FROM pushes
    WHERE landed_at >= :start AND landed_at < :stop AND (client_id = :client OR :client = '' AND client_id IS NULL)
  )
  ORDER BY last_push DESC, client_instance_id
  LIMIT :top
) AS newest
ORDER BY last_push DESC, client_instance_id
