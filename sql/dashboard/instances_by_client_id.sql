-- Which client instances with this client id pushed? Rows of `instances`, those with the latest pushes first.
SELECT *
FROM chosen
WHERE client_id = :client AND client_instance_id IN (
  SELECT client_instance_id
  FROM pushes
  WHERE landed_at >= :start AND landed_at < :stop AND (client_id = :client OR :client = '' AND client_id IS NULL)
)
ORDER BY last_push DESC, client_instance_id
