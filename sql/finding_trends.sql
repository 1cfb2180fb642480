-- Do the findings of today and yesterday get worse? One row per finding and subject, about its latest finished hour.
-- before: mean measure of the hours with the finding before that one, since yesterday (UTC); hours_before: their number.
-- trend: rising or falling, if measure is 20 % above or below before; else steady; new: no hour before. It is that of the
-- measure: of a few rules less is worse (docs/findings.md). While its first hour lasts, a finding is new.
WITH recent AS (
  SELECT
    cluster_id, finding, severity, scope, subject, client_id, window_start, measure, evidence,
    window_start < date_trunc('HOUR', current_timestamp()) AS finished
  FROM findings
  WHERE landed_date >= date_sub(current_date(), 1)
),

aged AS (
  SELECT
    r.*,
    row_number() OVER (
      PARTITION BY cluster_id, finding, scope, subject, client_id ORDER BY finished DESC, window_start DESC
    ) AS age
  FROM recent AS r
),

compared AS (
  SELECT
    cluster_id, finding, scope, subject, client_id,
    max(CASE WHEN age = 1 THEN severity END) AS severity,
    max(CASE WHEN age = 1 THEN window_start END) AS window_start,
    max(CASE WHEN age = 1 THEN measure END) AS measure,
    avg(CASE WHEN age > 1 AND finished THEN measure END) AS before,
    count(CASE WHEN age > 1 AND finished THEN 1 END) AS hours_before,
    max(CASE WHEN age = 1 THEN evidence END) AS evidence
  FROM aged
  GROUP BY cluster_id, finding, scope, subject, client_id
)

SELECT
  c.cluster_id, finding, scope, subject, c.client_id, application, owner, severity,
  CASE
    WHEN hours_before = 0 THEN 'new'
    WHEN measure > before + 0.2 * abs(before) THEN 'rising'
    WHEN measure < before - 0.2 * abs(before) THEN 'falling'
    ELSE 'steady'
  END AS trend,
  measure, before, hours_before, window_start, evidence
FROM compared AS c
LEFT JOIN entity_owners AS e
  ON coalesce(e.cluster_id, '') = coalesce(c.cluster_id, '') AND e.user = '' AND e.client_id = c.client_id
