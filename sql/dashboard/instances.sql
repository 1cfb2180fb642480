-- Which client instances pushed in the time range, and with which attributes?
-- One row per instance. Software, principal and group are those of its latest push in the range.
WITH labelled AS (
  SELECT cluster_id, client_instance_id, max_by(labels['group_id'], landed_at) AS group_id
  FROM push_outcomes
  WHERE landed_at >= :start AND landed_at < :stop AND labels['group_id'] IS NOT NULL
  GROUP BY cluster_id, client_instance_id
),

pushed AS (
  SELECT
    cluster_id,
    client_instance_id,
    max_by(client_id, landed_at) AS client_id,
    max_by(client_software_name, landed_at) AS client_software_name,
    max_by(client_software_version, landed_at) AS client_software_version,
    max_by(principal, landed_at) AS principal,
    max_by(client_address, landed_at) AS client_address,
    max(push_interval_ms) AS push_interval_ms,
    count(*) AS pushes,
    min(landed_at) AS first_push,
    max(landed_at) AS last_push,
    coalesce(max_by(terminating, landed_at), FALSE) AS terminated
  FROM pushes
  WHERE landed_at >= :start AND landed_at < :stop AND client_instance_id IS NOT NULL
  GROUP BY cluster_id, client_instance_id
)

SELECT
  p.cluster_id,
  p.client_instance_id,
  coalesce(p.client_id, '') AS client_id,
  p.client_software_name,
  p.client_software_version,
  p.principal,
  l.group_id,
  p.client_address,
  p.push_interval_ms,
  p.pushes,
  p.first_push,
  p.last_push,
  p.terminated,
  concat(coalesce(p.client_software_name, 'unknown'), ' ', coalesce(p.client_software_version, 'unknown')) AS software
FROM pushed AS p
LEFT JOIN labelled AS l
  ON l.cluster_id <=> p.cluster_id AND l.client_instance_id = p.client_instance_id
ORDER BY p.last_push DESC, p.client_instance_id
