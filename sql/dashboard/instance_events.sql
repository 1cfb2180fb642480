-- What happened to this client instance?
SELECT e.at, e.event, e.detail
FROM client_events AS e
WHERE e.client_instance_id = :instance AND e.landed_at >= :start AND e.landed_at < :stop
ORDER BY e.at DESC, e.event
LIMIT :top
