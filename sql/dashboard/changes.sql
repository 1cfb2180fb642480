-- What changed in the hour before the newest push? One row per kind: clients that are new, gone, silent, restarted or
-- throttled, and other events. client_id: the one of the latest of them, of several the last by name. restarted: client ids of which an instance ended
-- or fell silent and another one began.
WITH recent AS (
  SELECT e.event, e.client_id, e.client_instance_id, e.at
  FROM client_events AS e
  WHERE e.landed_at >= CAST(:stop AS TIMESTAMP) - INTERVAL 1 HOUR AND e.landed_at < :stop
    AND (e.client_instance_id IS NULL OR :filters = 0 OR e.client_instance_id IN (SELECT client_instance_id FROM chosen))
),

restarting AS (
  SELECT client_id
  FROM recent
  WHERE client_id IS NOT NULL AND event IN ('first_seen', 'terminated', 'went_silent')
  GROUP BY client_id
  HAVING max(CASE WHEN event = 'first_seen' THEN 1 ELSE 0 END) = 1 AND min(CASE WHEN event = 'first_seen' THEN 1 ELSE 0 END) = 0
),

restarts AS (
  SELECT client_id, max(at) AS at, count(DISTINCT client_instance_id) AS instances
  FROM recent
  WHERE event = 'first_seen' AND client_id IN (SELECT client_id FROM restarting)
  GROUP BY client_id
),

throttled AS (
  SELECT client_id, max(above_0_at) AS at
  FROM rollups
  WHERE array_contains(:metrics, metric) AND above_0_at >= CAST(:stop AS TIMESTAMP) - INTERVAL 1 HOUR
  GROUP BY client_id
)

SELECT event, count(DISTINCT client_id) AS client_ids, count(DISTINCT client_instance_id) AS instances,
  max_by(client_id, concat(CAST(unix_micros(at) AS STRING), coalesce(client_id, ''))) AS client_id, max(at) AS latest
FROM recent
GROUP BY event
UNION ALL
SELECT 'restarted', count(*), sum(instances), max_by(client_id, concat(CAST(unix_micros(at) AS STRING), coalesce(client_id, ''))), max(at) FROM restarts HAVING count(*) > 0
UNION ALL
SELECT 'throttled', count(*), NULL, max_by(client_id, concat(CAST(unix_micros(at) AS STRING), coalesce(client_id, ''))), max(at) FROM throttled HAVING count(*) > 0
