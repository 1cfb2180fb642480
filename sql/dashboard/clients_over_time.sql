-- How many client instances pushed in each window?
SELECT
  CAST(floor(unix_millis(p.landed_at) / :step_ms) * :step_ms AS BIGINT) AS at_ms,
  p.client_software_name,
  count(DISTINCT p.client_instance_id) AS clients
FROM pushes AS p
WHERE p.landed_at >= :start AND p.landed_at < :stop AND p.client_instance_id IS NOT NULL
  AND p.client_instance_id IN (SELECT client_instance_id FROM chosen)
GROUP BY at_ms, p.client_software_name
ORDER BY at_ms, p.client_software_name
