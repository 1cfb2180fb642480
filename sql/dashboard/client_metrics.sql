-- Which metrics did this client instance push?
SELECT metric, any_value(kind) AS kind, count(*) AS points, count(DISTINCT series_id) AS series, sum(delta) AS increase,
  min(value) AS least, max(value) AS most
FROM metric_points
WHERE client_instance_id = :instance AND landed_at >= :start AND landed_at < :stop
GROUP BY metric
ORDER BY metric
