-- What is wrong with this client instance? One row per finding, with the evidence of its last hour.
SELECT finding, severity, hours, evidence, advice, last_window
FROM (
  SELECT finding, max_by(f.severity, f.window_start) AS severity, count(*) AS hours,
    max_by(f.evidence, f.window_start) AS evidence, max_by(f.advice, f.window_start) AS advice,
    max(f.window_start) AS last_window
  FROM instance_findings AS f
  WHERE f.client_instance_id = :instance
    AND f.landed_date >= CAST(:start AS DATE) AND f.landed_date <= CAST(:stop AS DATE)
    AND f.window_start >= date_trunc('HOUR', :start) AND f.window_start < :stop
  GROUP BY finding
) AS by_age
ORDER BY CASE severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, hours DESC, finding
