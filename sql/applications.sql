-- Which applications, owners and principals are there, with how many clients, and what is wrong with them?
-- One row per cluster, scope and subject: scope is application, owner or principal; subject is its name, NULL for the
-- clients that have none. client_ids, consumer_groups: also of group members that push nothing, of which members_pushing_nothing
-- is the number; brokers don't say their principals. limited_instances: those that a produce or fetch quota limits.
-- throttled_instances: those that brokers throttle now (throttled_clients, ongoing). versions: libraries and their versions.
-- errors, warnings and infos: open findings of the subject's client ids. A client id that several applications use counts
-- for none of them there: its findings name all of them. Bytes and costs are in application_cost.
WITH subjects AS (
  SELECT u.*, scope, CASE scope WHEN 'application' THEN application WHEN 'owner' THEN owner ELSE principal END AS subject
  FROM (
    SELECT
      cluster_id, client_instance_id, client_id, application, owner, principal, state,
      element_at(labels, 'group_id') AS group_id, nullif(concat_ws(' ', client_software_name, client_software_version), '') AS version,
      first_seen, last_seen
    FROM clients
    UNION ALL
    SELECT
      cluster_id, NULL, client_id, application, owner, NULL, NULL, group_id, NULL, since, NULL
    FROM consumer_group_members
    WHERE NOT pushing
  ) AS u
  LATERAL VIEW explode(array('application', 'owner', 'principal')) AS scope
),

throttled AS (
  SELECT DISTINCT cluster_id, explode(client_instance_ids) AS client_instance_id
  FROM throttled_clients
  WHERE ongoing
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
  count(s.client_instance_id) AS instances,
  count(CASE WHEN s.state = 'active' THEN 1 END) AS active_instances,
  count(CASE WHEN s.client_instance_id IS NULL THEN 1 END) AS members_pushing_nothing,
  count(DISTINCT s.group_id) AS consumer_groups,
  coalesce(sort_array(collect_set(s.version)), array()) AS versions,
  count(l.client_instance_id) AS limited_instances,
  count(t.client_instance_id) AS throttled_instances,
  coalesce(max(w.errors), 0) AS errors,
  coalesce(max(w.warnings), 0) AS warnings,
  coalesce(max(w.infos), 0) AS infos,
  min(s.first_seen) AS first_seen,
  max(s.last_seen) AS last_seen
FROM subjects AS s
LEFT JOIN limited AS l
  ON coalesce(l.cluster_id, '') = coalesce(s.cluster_id, '') AND l.client_instance_id = s.client_instance_id
LEFT JOIN throttled AS t
  ON coalesce(t.cluster_id, '') = coalesce(s.cluster_id, '') AND t.client_instance_id = s.client_instance_id
LEFT JOIN wrong AS w
  ON coalesce(w.cluster_id, '') = coalesce(s.cluster_id, '') AND w.scope = s.scope AND w.subject = s.subject
GROUP BY s.cluster_id, s.scope, s.subject
