-- Which findings are open now, since when, and who looks after them? The worst and oldest first.
-- With :filters above 0 those of the selected clients, and those of no single client of the same clusters.
SELECT f.finding_id, f.cluster_id, coalesce(f.client_id, concat(f.scope, ' ', f.subject)) AS client_id, f.severity,
  f.finding, f.opened_at, f.state, f.evidence, f.advice, f.by, f.why, f.until, f.application, f.owner, f.worst_instance,
  f.scope, f.subject, f.window_start, f.measure, f.instances, f.instances_affected
FROM open_findings AS f
WHERE :filters = 0
  OR (coalesce(f.cluster_id, ''), coalesce(f.client_id, '')) IN (SELECT coalesce(cluster_id, ''), client_id FROM chosen)
  OR f.client_id IS NULL AND coalesce(f.cluster_id, '') IN (SELECT coalesce(cluster_id, '') FROM chosen)
ORDER BY CASE f.severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, f.opened_at, f.finding_id
