-- How did what a finding measures change, of what has the finding and of its healthy peers? One row per hour, of relation
-- measures (a rule's SELECT, pipelines/findings/measured.py). measure: of several instances the one that view findings
-- names, or in an hour without the finding the worst; so of several clusters. opens, closes: the bounds. had_it: 1 in an hour with the finding.
-- peers: how many subjects have a measure in the hour and the finding in no hour; low, median, high: quartiles of theirs.
-- ill_peers: how many had the finding in some hour.
WITH worst AS (
  SELECT
    coalesce(subject, '') AS subject, window_start, measure, opens, closes, has_it,
    row_number() OVER (
      PARTITION BY subject, window_start
      ORDER BY
        CASE WHEN has_it THEN 1 ELSE 0 END DESC,
        CASE WHEN NOT has_it THEN 0 WHEN severity = 'error' THEN 3 WHEN severity = 'warning' THEN 2 ELSE 1 END DESC,
        CASE WHEN :less > 0 THEN -measure ELSE measure END DESC NULLS LAST,
        client_instance_id
    ) AS place
  FROM measures
  WHERE landed_date >= CAST(:start AS DATE) AND landed_date <= CAST(:stop AS DATE)
    AND window_start >= date_trunc('HOUR', :start) AND window_start < :stop
    AND array_contains(:clusters, coalesce(cluster_id, ''))
    AND (
      coalesce(subject, '') = :subject
      OR is_known AND (:all_peers > 0 OR array_contains(:peers, subject)) AND NOT array_contains(:ill, subject)
    )
),

judged AS (
  SELECT
    *,
    subject = :subject AS is_own,
    max(CASE WHEN has_it THEN 1 ELSE 0 END) OVER (PARTITION BY subject) AS ever_had_it
  FROM worst
  WHERE place = 1
)

SELECT
  CAST(unix_millis(window_start) AS BIGINT) AS at_ms,
  max(CASE WHEN is_own THEN measure END) AS measure,
  max(CASE WHEN is_own THEN opens END) AS opens,
  max(CASE WHEN is_own THEN closes END) AS closes,
  max(CASE WHEN is_own AND has_it THEN 1 ELSE 0 END) AS had_it,
  count(CASE WHEN NOT is_own AND ever_had_it = 0 THEN measure END) AS peers,
  percentile_cont(0.25) WITHIN GROUP (ORDER BY CASE WHEN NOT is_own AND ever_had_it = 0 THEN measure END) AS low,
  percentile_cont(0.5) WITHIN GROUP (ORDER BY CASE WHEN NOT is_own AND ever_had_it = 0 THEN measure END) AS median,
  percentile_cont(0.75) WITHIN GROUP (ORDER BY CASE WHEN NOT is_own AND ever_had_it = 0 THEN measure END) AS high,
  count(CASE WHEN NOT is_own AND ever_had_it = 1 THEN 1 END) AS ill_peers
FROM judged
GROUP BY window_start
ORDER BY at_ms
