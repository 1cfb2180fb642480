-- Which findings are open, since when, and who looks after them? One row per finding that isn't resolved.
-- state: open, acknowledged (until it is resolved) or muted (until its time, even if it is resolved and opens again).
-- by, why: who acknowledged or muted it. evidence and advice: as of the latest change, about the hour window_start.
WITH changes AS (
  SELECT
    c.*,
    row_number() OVER (PARTITION BY finding_id ORDER BY opened_at DESC, at DESC, window_start DESC, recorded_at DESC) AS age
  FROM finding_changes AS c
  WHERE change IN ('opened', 'changed', 'resolved')
),

mutes AS (
  SELECT finding_id, until, by, why, row_number() OVER (PARTITION BY finding_id ORDER BY recorded_at DESC) AS age
  FROM finding_changes
  WHERE change IN ('muted', 'unmuted')
),

acknowledged AS (
  SELECT finding_id, opened_at, by, why, row_number() OVER (PARTITION BY finding_id, opened_at ORDER BY recorded_at DESC) AS age
  FROM finding_changes
  WHERE change = 'acknowledged'
)

SELECT
  c.cluster_id,
  c.finding_id,
  CASE WHEN m.finding_id IS NOT NULL THEN 'muted' WHEN a.finding_id IS NOT NULL THEN 'acknowledged' ELSE 'open' END AS state,
  c.finding,
  c.severity,
  c.scope,
  c.subject,
  c.client_id,
  c.principal,
  c.application,
  c.owner,
  c.opened_at,
  (unix_micros(current_timestamp()) - unix_micros(c.opened_at)) / 3600000000.0 AS open_hours,
  c.window_start,
  c.measure,
  c.instances,
  c.instances_affected,
  c.worst_instance,
  c.evidence,
  c.advice,
  m.until,
  coalesce(m.by, a.by) AS by,
  coalesce(m.why, a.why) AS why
FROM changes AS c
LEFT JOIN mutes AS m
  ON m.finding_id = c.finding_id AND m.age = 1 AND m.until > current_timestamp()
LEFT JOIN acknowledged AS a
  ON a.finding_id = c.finding_id AND a.opened_at = c.opened_at AND a.age = 1
WHERE c.age = 1 AND c.change <> 'resolved'
