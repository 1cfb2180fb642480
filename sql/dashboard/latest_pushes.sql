-- Since when did the latest :top pushes land?
SELECT min(landed_at) AS since
FROM (
  SELECT landed_at
  FROM pushes
  WHERE landed_at >= :start AND landed_at < :stop AND client_instance_id IS NOT NULL
  ORDER BY landed_at DESC
  LIMIT :top
) AS latest
