-- Which applications, owners and principals have open findings, since when, and of how many clients? One row per group
-- and finding. scope: application, owner or principal; subject: its name. findings: open findings of the group's subjects (client ids, ...).
-- severity: the worst of them. state: open if one of them is open, else acknowledged if one is, else muted. opened_at: of
-- the oldest. instances_affected: client instances that have the finding, by the latest change of each.
-- worst_finding_id: of the most severe, of these the one of most instances; open_findings has its evidence and advice.
WITH grouped AS (
  SELECT o.*, 'application' AS group_scope, application AS group_subject
  FROM open_findings AS o
  WHERE application IS NOT NULL

  UNION ALL

  SELECT o.*, 'owner' AS group_scope, owner AS group_subject
  FROM open_findings AS o
  WHERE owner IS NOT NULL

  UNION ALL

  SELECT o.*, 'principal' AS group_scope, principal AS group_subject
  FROM open_findings AS o
  WHERE principal IS NOT NULL
),

ranked AS (
  SELECT
    g.*,
    row_number() OVER (
      PARTITION BY cluster_id, group_scope, group_subject, finding
      ORDER BY
        CASE severity WHEN 'error' THEN 3 WHEN 'warning' THEN 2 ELSE 1 END DESC,
        coalesce(instances_affected, 0) DESC, finding_id
    ) AS place
  FROM grouped AS g
)

SELECT
  cluster_id,
  group_scope AS scope,
  group_subject AS subject,
  finding,
  max(CASE WHEN place = 1 THEN severity END) AS severity,
  CASE
    WHEN count(CASE WHEN state = 'open' THEN 1 END) > 0 THEN 'open'
    WHEN count(CASE WHEN state = 'acknowledged' THEN 1 END) > 0 THEN 'acknowledged'
    ELSE 'muted'
  END AS state,
  count(*) AS findings,
  CAST(sum(instances_affected) AS BIGINT) AS instances_affected,
  min(opened_at) AS opened_at,
  max(CASE WHEN place = 1 THEN finding_id END) AS worst_finding_id
FROM ranked
GROUP BY cluster_id, group_scope, group_subject, finding
