-- What did this client instance push of one metric? Each point with its delta.
SELECT time, series_id, to_json(attributes) AS attributes, value, delta_start, delta, delta_status
FROM metric_points
WHERE client_instance_id = :instance AND metric = :metric AND landed_at >= :start AND landed_at < :stop
ORDER BY time, series_id
LIMIT :top
