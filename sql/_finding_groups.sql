-- What is wrong with which application, and with the clients of which owner and principal? One row per group, hour and
-- finding.
-- scope: application, owner or principal; subject: its name. instances: client instances of it that
-- pushed in the hour; instances_affected and share: those that have the finding. evidence, advice and measure are
-- those of worst_instance, of worst_client_id. Only findings of client instances are grouped.
-- Filter by landed_date, the UTC date of window_start: then other days aren't read.
WITH members AS (
  SELECT
    cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at) AS window_start,
    max_by(principal, landed_at) AS principal
  FROM pushes
  GROUP BY cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at)
),

named AS (
  -- Aliases and rules for an hour's clients are those in force now, as in view clients: an owner is asked today. Pushes
  -- of no known client instance have the alias of their client id at most.
  SELECT
    m.*, CASE WHEN c.client_instance_id IS NULL THEN n.application ELSE c.application END AS application,
    CASE WHEN c.client_instance_id IS NULL THEN n.owner ELSE c.owner END AS owner,
    row_number() OVER (
      PARTITION BY m.cluster_id, m.client_id, m.client_instance_id, m.landed_date, m.window_start
      ORDER BY n.cluster_id DESC NULLS LAST
    ) AS place
  FROM members AS m
  LEFT JOIN clients AS c
    ON coalesce(c.cluster_id, '') = coalesce(m.cluster_id, '') AND c.client_instance_id = m.client_instance_id
  LEFT JOIN client_aliases AS n
    ON n.client_instance_id IS NULL AND n.client_id = m.client_id AND n.valid_to IS NULL
    AND coalesce(n.cluster_id, m.cluster_id, '') = coalesce(m.cluster_id, '')
),

grouped AS (
  SELECT *, 'application' AS scope, application AS subject FROM named WHERE place = 1 AND application IS NOT NULL

  UNION ALL

  SELECT *, 'owner' AS scope, owner AS subject FROM named WHERE place = 1 AND owner IS NOT NULL

  UNION ALL

  SELECT *, 'principal' AS scope, principal AS subject FROM named WHERE place = 1 AND principal IS NOT NULL
),

sizes AS (
  SELECT cluster_id, landed_date, window_start, scope, subject, count(*) AS instances
  FROM grouped
  GROUP BY cluster_id, landed_date, window_start, scope, subject
),

placed AS (
  SELECT
    f.*, g.scope, g.subject,
    row_number() OVER (
      PARTITION BY f.cluster_id, f.landed_date, f.window_start, f.finding, g.scope, g.subject
      ORDER BY
        CASE severity WHEN 'error' THEN 3 WHEN 'warning' THEN 2 ELSE 1 END DESC,
        CASE WHEN finding IN (:less_is_worse) THEN -measure ELSE measure END DESC,
        f.client_id, f.client_instance_id
    ) AS place,
    count(*) OVER (
      PARTITION BY f.cluster_id, f.landed_date, f.window_start, f.finding, g.scope, g.subject
    ) AS affected
  FROM instance_findings AS f
  JOIN grouped AS g
    ON g.cluster_id <=> f.cluster_id AND g.client_id <=> f.client_id
    AND g.client_instance_id <=> f.client_instance_id AND g.landed_date = f.landed_date
    AND g.window_start = f.window_start
)

SELECT
  p.cluster_id, p.scope, p.subject, p.window_start, p.finding, p.severity, s.instances,
  p.affected AS instances_affected, CAST(p.affected AS DOUBLE) / s.instances AS share, p.client_id AS worst_client_id,
  p.client_instance_id AS worst_instance, p.measure, p.evidence, p.advice, p.landed_date
FROM placed AS p
JOIN sizes AS s
  ON s.cluster_id <=> p.cluster_id AND s.landed_date = p.landed_date AND s.window_start = p.window_start
  AND s.scope = p.scope AND s.subject = p.subject
WHERE p.place = 1
