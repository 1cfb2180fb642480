-- How many client instances pushed in each window?
SELECT
  CAST(floor(unix_millis(o.landed_at) / :step_ms) * :step_ms AS BIGINT) AS at_ms,
  c.client_software_name,
  count(DISTINCT o.client_instance_id) AS clients
FROM push_outcomes AS o
JOIN chosen AS c
  ON c.client_instance_id = o.client_instance_id
WHERE o.landed_at >= :start AND o.landed_at < :stop
GROUP BY at_ms, c.client_software_name
ORDER BY at_ms, c.client_software_name
