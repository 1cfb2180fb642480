-- What is wrong with which client instance, what shows it, and what helps? One row per instance, hour and finding.
-- measure: the number that the rule compares; docs/findings.md has its unit. evidence ends with the hour it is about.
-- Filter by landed_date, the UTC date of window_start: then other days aren't read.
WITH detected AS (
  SELECT
    cluster_id, client_instance_id, client_id, window_start, landed_date,
    array(
      :rules
    ) AS all_findings
  FROM instance_hours AS h
),

found AS (
  -- explode_outer: for explode, Spark infers filters, copies all conditions into them, and plans for minutes.
  SELECT cluster_id, client_instance_id, client_id, window_start, landed_date, explode_outer(all_findings) AS f
  FROM detected
)

SELECT
  cluster_id, client_instance_id, client_id, window_start, f.finding, f.severity, f.measure,
  concat(f.evidence, ', in the hour from ', date_format(window_start, 'yyyy-MM-dd HH:mm'), ' UTC') AS evidence,
  f.advice, landed_date
FROM found
WHERE f.finding IS NOT NULL
