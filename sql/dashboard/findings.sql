-- What is wrong with which selected client? One row per client id and finding, with the evidence of its last hour.
-- client_id: also a group, topic, broker or principal of the selected clients' clusters, which the finding is about.
SELECT client_id, scope, subject, finding, severity, hours, evidence, advice, last_window, worst_instance
FROM (
  SELECT coalesce(client_id, concat(scope, ' ', subject)) AS client_id, scope, subject, finding,
    max_by(f.severity, f.window_start) AS severity, count(*) AS hours, max_by(f.evidence, f.window_start) AS evidence,
    max_by(f.advice, f.window_start) AS advice, max(f.window_start) AS last_window,
    max_by(f.worst_instance, f.window_start) AS worst_instance
  FROM findings AS f
  WHERE f.landed_date >= CAST(:start AS DATE) AND f.landed_date <= CAST(:stop AS DATE)
    AND f.window_start >= date_trunc('HOUR', :start) AND f.window_start < :stop
    AND (
      (coalesce(f.cluster_id, ''), coalesce(f.client_id, '')) IN (SELECT coalesce(cluster_id, ''), client_id FROM chosen)
      OR f.client_id IS NULL AND coalesce(f.cluster_id, '') IN (SELECT coalesce(cluster_id, '') FROM chosen)
    )
  GROUP BY client_id, scope, subject, finding
) AS by_age
ORDER BY CASE severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, hours DESC, finding, client_id
LIMIT :top
