-- How complete is the telemetry of each client (D4)? One row per client instance, and one per cluster
-- (client_instance_id NULL). coverage: 0 to 1, share of the time from first to last push that pushes cover, by landing
-- time. lost_ms: intervals missing between DELTA pushes, by the client's clock, minus those that a late push filled.
-- lost_records: at most (not each offset has a record), of the cluster's landing topics, gone before the job read them;
-- nobody knows whose they were.
WITH chains AS (
  SELECT
    cluster_id,
    client_instance_id,
    count_if(event = 'lost_interval') AS lost_intervals,
    count_if(event = 'lost_interval_closed') AS lost_intervals_closed,
    sum(
      CASE event WHEN 'lost_interval' THEN 1 WHEN 'lost_interval_closed' THEN -1 END
      * CAST(element_at(detail, 'ms') AS BIGINT)
    ) AS lost_ms,
    count_if(event = 'temporality_flip') AS temporality_flips,
    count_if(event = 'too_late') AS too_late_pushes
  FROM client_events
  WHERE event IN ('lost_interval', 'lost_interval_closed', 'temporality_flip', 'too_late')
  GROUP BY cluster_id, client_instance_id
),

covered AS (
  SELECT
    c.cluster_id,
    c.client_instance_id,
    c.client_id,
    c.application,
    c.owner,
    c.state,
    c.pushes,
    c.missed_pushes,
    unix_millis(c.last_seen) - unix_millis(c.first_seen) AS elapsed_ms,
    c.coverage,
    coalesce(e.lost_intervals, 0) AS lost_intervals,
    coalesce(e.lost_intervals_closed, 0) AS lost_intervals_closed,
    greatest(coalesce(e.lost_ms, 0), 0) AS lost_ms,
    coalesce(e.temporality_flips, 0) AS temporality_flips,
    coalesce(e.too_late_pushes, 0) AS too_late_pushes
  FROM clients AS c
  LEFT JOIN chains AS e
    ON coalesce(e.cluster_id, '') = coalesce(c.cluster_id, '') AND e.client_instance_id = c.client_instance_id
),

lost AS (
  SELECT
    cluster_id,
    sum(records) AS records
  FROM lost_records
  GROUP BY cluster_id
)

SELECT
  *,
  1 AS clients,
  CAST(NULL AS BIGINT) AS lost_records
FROM covered
UNION ALL
SELECT
  c.cluster_id,
  NULL AS client_instance_id,
  NULL AS client_id,
  NULL AS application,
  NULL AS owner,
  NULL AS state,
  sum(pushes) AS pushes,
  sum(missed_pushes) AS missed_pushes,
  sum(elapsed_ms) AS elapsed_ms,
  coalesce(sum(coverage * elapsed_ms) / nullif(sum(elapsed_ms), 0), 1.0) AS coverage,
  sum(lost_intervals) AS lost_intervals,
  sum(lost_intervals_closed) AS lost_intervals_closed,
  sum(lost_ms) AS lost_ms,
  sum(temporality_flips) AS temporality_flips,
  sum(too_late_pushes) AS too_late_pushes,
  count(*) AS clients,
  coalesce(max(l.records), 0) AS lost_records
FROM covered AS c
LEFT JOIN lost AS l
  ON coalesce(l.cluster_id, '') = coalesce(c.cluster_id, '')
GROUP BY c.cluster_id
