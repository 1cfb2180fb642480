-- How many events of each kind happened, over time?
SELECT CAST(floor(unix_millis(e.at) / :step_ms) * :step_ms AS BIGINT) AS at_ms, e.event, count(*) AS events
FROM client_events AS e
WHERE e.landed_at >= :start AND e.landed_at < :stop
  AND (e.client_instance_id IS NULL OR e.client_instance_id IN (SELECT client_instance_id FROM chosen))
GROUP BY at_ms, e.event
ORDER BY at_ms, e.event
