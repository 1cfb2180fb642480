-- What is wrong with which client, what is the evidence, and what helps? One row per client id, hour and finding.
-- evidence ends with the hour that it is about; evidence and advice are those of worst_instance. client_id is NULL if
-- the finding isn't about one; scope and subject say what it is about. docs/findings.md explains the rules and
-- thresholds. severity: error (data or telemetry is lost, or soon will be), warning (costs time or money), info.
-- Filter by landed_date, the UTC date of window_start: then other days aren't read.
WITH placed AS (
  SELECT
    f.*,
    row_number() OVER (
      PARTITION BY cluster_id, client_id, landed_date, window_start, finding
      ORDER BY
        CASE severity WHEN 'error' THEN 3 WHEN 'warning' THEN 2 ELSE 1 END DESC,
        CASE WHEN finding IN (:less_is_worse) THEN -measure ELSE measure END DESC,
        client_instance_id
    ) AS place,
    count(*) OVER (PARTITION BY cluster_id, client_id, landed_date, window_start, finding) AS affected
  FROM instance_findings AS f
),

outcome_hours AS (
  -- This and the two below are what the rules read that aren't about client instances: each table once, however many
  -- rules there are.
  SELECT
    cluster_id, client_id, landed_date, date_trunc('HOUR', landed_at) AS window_start,
    count(DISTINCT client_instance_id) AS instances, count(*) AS pushes,
    (unix_micros(max(landed_at)) - unix_micros(min(landed_at))) / 1000000.0 AS span_s
  FROM push_outcomes
  GROUP BY cluster_id, client_id, landed_date, date_trunc('HOUR', landed_at)
),

client_hours AS (
  SELECT
    cluster_id, client_id, landed_date, date_trunc('HOUR', landed_at) AS window_start,
    count(DISTINCT client_instance_id) AS instances, max(push_interval_ms) / 1000.0 AS push_interval_s,
    count(DISTINCT CASE WHEN client_instance_id IS NOT NULL THEN principal END) AS principals,
    min(CASE WHEN client_instance_id IS NOT NULL THEN principal END) AS first_principal,
    max(CASE WHEN client_instance_id IS NOT NULL THEN principal END) AS last_principal,
    count(DISTINCT software) AS versions, min(software) AS first_version, max(software) AS last_version
  FROM (
    SELECT
      *, CASE WHEN client_instance_id IS NOT NULL AND client_software_name <> 'unknown'
        THEN concat(client_software_name, ' ', client_software_version) END AS software
    FROM pushes
  ) AS p
  GROUP BY cluster_id, client_id, landed_date, date_trunc('HOUR', landed_at)
),

series_hours AS (
  -- Gauges, and counters (increase, covered_s). reports counts values; those of busy_* are above 0. latest: of the last
  -- push. most_q1 to least_q4: of the quarter of the hour in which the push landed.
  SELECT
    cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at) AS window_start,
    metric, element_at(attributes, 'topic') AS topic, element_at(attributes, 'partition') AS partition,
    element_at(attributes, 'node_id') AS node_id, count(value) AS reports, min(value) AS least, max(value) AS most,
    max(CASE WHEN hour_us < 900000000 THEN value END) AS most_q1,
    max(CASE WHEN hour_us >= 900000000 AND hour_us < 1800000000 THEN value END) AS most_q2,
    min(CASE WHEN hour_us >= 1800000000 AND hour_us < 2700000000 THEN value END) AS least_q3,
    min(CASE WHEN hour_us >= 2700000000 THEN value END) AS least_q4,
    max_by(value, landed_at) AS latest,
    avg(CASE WHEN value > 0 THEN value END) AS busy_mean, count(CASE WHEN value > 0 THEN 1 END) AS busy_reports,
    sum(delta) AS increase,
    sum(CASE WHEN delta IS NOT NULL THEN unix_micros(time) - unix_micros(delta_start) END) / 1000000.0 AS covered_s
  FROM (
    SELECT *, unix_micros(landed_at) % 3600000000 AS hour_us
    FROM metric_points
    WHERE metric IN (:series) AND (kind = 'gauge' OR kind = 'sum' AND metric IN (:counters))
      AND delta_status NOT IN ('duplicate', 'conflict', 'too_late')
  ) AS p
  GROUP BY
    cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at), metric,
    element_at(attributes, 'topic'), element_at(attributes, 'partition'), element_at(attributes, 'node_id')
),

shared AS (
  SELECT p.*, greatest(p.affected, coalesce(s.instances, 0)) AS instances
  FROM placed AS p
  LEFT JOIN outcome_hours AS s
    ON s.cluster_id <=> p.cluster_id AND s.client_id <=> p.client_id AND s.landed_date = p.landed_date
    AND s.window_start = p.window_start
  WHERE p.place = 1
)

SELECT
  cluster_id, client_id, window_start, finding, severity,
  CASE WHEN instances > 1 THEN concat(
    CAST(affected AS STRING), ' of ', CAST(instances AS STRING), ' client instances (',
    CAST(round(100.0 * affected / instances, 1) AS STRING), ' %), at worst ',
    coalesce(client_instance_id, 'one without id'), ': ', evidence
  ) ELSE evidence END AS evidence,
  advice, 'client_id' AS scope, client_id AS subject, instances, affected AS instances_affected,
  client_instance_id AS worst_instance, measure, landed_date
FROM shared

:others
