-- Which applications, owners and principals are there, with how many clients, and what is wrong with them?
-- One row per cluster, scope and subject: scope is application, owner or principal; subject is its name, NULL for the
-- clients that have none. limited_instances: those that a produce or fetch quota limits. versions: libraries and their
-- versions. errors, warnings and infos: open findings of the subject's client ids. A client id that several
-- applications use counts for none of them there: its findings name all of them.
WITH subjects AS (
  SELECT c.*, scope, CASE scope WHEN 'application' THEN application WHEN 'owner' THEN owner ELSE principal END AS subject
  FROM clients AS c
  LATERAL VIEW explode(array('application', 'owner', 'principal')) AS scope
),

limited AS (
  SELECT DISTINCT cluster_id, client_instance_id
  FROM client_quotas
  WHERE quota_type IN ('produce', 'fetch') AND quota_limit IS NOT NULL
),

wrong AS (
  SELECT
    cluster_id, scope, subject,
    count(CASE WHEN severity = 'error' THEN 1 END) AS errors,
    count(CASE WHEN severity = 'warning' THEN 1 END) AS warnings,
    count(CASE WHEN severity = 'info' THEN 1 END) AS infos
  FROM (
    SELECT
      cluster_id, severity, group_scope AS scope,
      CASE group_scope WHEN 'application' THEN application WHEN 'owner' THEN owner ELSE principal END AS subject
    FROM open_findings
    LATERAL VIEW explode(array('application', 'owner', 'principal')) AS group_scope
  ) AS o
  WHERE subject IS NOT NULL
  GROUP BY cluster_id, scope, subject
)

SELECT
  s.cluster_id,
  s.scope,
  s.subject,
  count(DISTINCT s.client_id) AS client_ids,
  count(*) AS instances,
  count(CASE WHEN s.state = 'active' THEN 1 END) AS active_instances,
  count(DISTINCT element_at(s.labels, 'group_id')) AS consumer_groups,
  sort_array(collect_set(concat(s.client_software_name, ' ', s.client_software_version))) AS versions,
  count(l.client_instance_id) AS limited_instances,
  coalesce(max(w.errors), 0) AS errors,
  coalesce(max(w.warnings), 0) AS warnings,
  coalesce(max(w.infos), 0) AS infos,
  min(s.first_seen) AS first_seen,
  max(s.last_seen) AS last_seen
FROM subjects AS s
LEFT JOIN limited AS l
  ON coalesce(l.cluster_id, '') = coalesce(s.cluster_id, '') AND l.client_instance_id = s.client_instance_id
LEFT JOIN wrong AS w
  ON coalesce(w.cluster_id, '') = coalesce(s.cluster_id, '') AND w.scope = s.scope AND w.subject = s.subject
GROUP BY s.cluster_id, s.scope, s.subject
