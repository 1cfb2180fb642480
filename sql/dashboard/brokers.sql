-- Which brokers took the selected clients' pushes?
SELECT broker_id, count(DISTINCT client_instance_id) AS clients, count(*) AS pushes, max(landed_at) AS last_push
FROM pushes
WHERE landed_at >= :start AND landed_at < :stop AND client_instance_id IN (SELECT client_instance_id FROM chosen)
GROUP BY broker_id
ORDER BY broker_id
LIMIT :top
