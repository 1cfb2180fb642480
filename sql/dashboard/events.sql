-- What happened to the selected clients and to the fleet? The :top latest events.
SELECT e.at, e.event, e.client_id, e.client_instance_id, e.detail
FROM client_events AS e
WHERE e.landed_at >= :start AND e.landed_at < :stop
  AND (e.client_instance_id IS NULL OR e.client_instance_id IN (SELECT client_instance_id FROM chosen))
ORDER BY e.at DESC, e.event, e.client_id
LIMIT :top
