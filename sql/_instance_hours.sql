-- What did each client instance do in each hour in which its pushes landed? Counts, means and extremes of the hour.
-- docs/findings.md has the meaning of each column. NULL: its library doesn't push the metric.
-- Filter by landed_date, the UTC date of window_start: then other days aren't read.
WITH points AS (
  SELECT
    cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at) AS window_start, metric,
    sum(CASE WHEN kind = 'sum' THEN delta END) AS increase,
    sum(CASE WHEN kind = 'sum' AND delta IS NOT NULL THEN unix_micros(time) - unix_micros(delta_start) END) / 1000000.0
      AS covered_s,
    sum(CASE WHEN kind = 'sum' AND delta = 0 THEN unix_micros(time) - unix_micros(delta_start) END) / 1000000.0
      AS still_s,
    bit_or(
      CASE WHEN kind = 'sum' AND delta > 0 THEN CAST(pow(2, floor(unix_micros(landed_at) / 900000000) % 4) AS INT) END
    ) AS quarters,
    sum(CASE WHEN kind = 'gauge' THEN value END) AS value_sum,
    count(CASE WHEN kind = 'gauge' THEN value END) AS value_count,
    min(CASE WHEN kind = 'gauge' THEN value END) AS value_min,
    max(CASE WHEN kind = 'gauge' THEN value END) AS value_max
  FROM metric_points
  WHERE metric IN (:metrics)
    AND (metric NOT IN (:whole) OR element_at(attributes, 'topic') IS NULL)
    AND (metric NOT IN (:since_1970) OR value < 1000000000)
    AND delta_status NOT IN ('duplicate', 'conflict', 'too_late')
  GROUP BY cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at), metric
),

stacked AS (
  SELECT
    cluster_id, client_id, client_instance_id, landed_date, window_start,
    metric, increase, covered_s, still_s, quarters, value_sum, value_count, value_min, value_max,
    NULL AS pushes, NULL AS quarantined, NULL AS lost_intervals, NULL AS dropped, NULL AS rejected_points,
    NULL AS push_bytes_max, NULL AS push_bytes_last, NULL AS last_push_at, NULL AS is_member, NULL AS reads_batches,
    NULL AS clock_ahead_s, NULL AS clock_behind_s, NULL AS push_interval_s, NULL AS software_name,
    NULL AS software_version, NULL AS set_aside, NULL AS duplicates, NULL AS dead_paths, NULL AS silent_after
  FROM points

  UNION ALL

  SELECT
    cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at) AS window_start,
    NULL AS metric, NULL AS increase, NULL AS covered_s, NULL AS still_s, NULL AS quarters, NULL AS value_sum,
    NULL AS value_count, NULL AS value_min, NULL AS value_max,
    count(*) AS pushes,
    sum(CASE WHEN outcome = 'quarantined' THEN 1 ELSE 0 END) AS quarantined,
    count(lost_start) AS lost_intervals,
    sum(CASE WHEN outcome = 'dropped' THEN 1 ELSE 0 END) AS dropped,
    sum(quarantined_points) AS rejected_points,
    max(decompressed_bytes) AS push_bytes_max,
    -- Without coalesce DuckDB passes over a last push of unknown size, and Spark doesn't.
    max_by(coalesce(decompressed_bytes, 0), landed_at) AS push_bytes_last,
    max(landed_at) AS last_push_at,
    max(CASE WHEN element_at(labels, 'group_member_id') <> '' THEN 1 END) AS is_member,
    -- Spark names its consumers' groups so, and assigns their partitions by hand. Streams polls its restore consumers
    -- only while their thread's tasks lack state.
    max(
      CASE WHEN element_at(labels, 'group_id') RLIKE '^spark-(kafka-(source|relation)|executor)-'
        OR client_id RLIKE '-StreamThread-[0-9]+-restore-consumer$' THEN 1 END
    ) AS reads_batches,
    max(unix_micros(last_time) - unix_micros(landed_at)) / 1000000.0 AS clock_ahead_s,
    min(unix_micros(landed_at) - unix_micros(last_time)) / 1000000.0 AS clock_behind_s,
    NULL AS push_interval_s, NULL AS software_name, NULL AS software_version, NULL AS set_aside, NULL AS duplicates,
    NULL AS dead_paths, NULL AS silent_after
  FROM push_outcomes
  GROUP BY cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at)

  UNION ALL

  SELECT
    cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at) AS window_start,
    NULL AS metric, NULL AS increase, NULL AS covered_s, NULL AS still_s, NULL AS quarters, NULL AS value_sum,
    NULL AS value_count, NULL AS value_min, NULL AS value_max,
    NULL AS pushes, NULL AS quarantined, NULL AS lost_intervals, NULL AS dropped, NULL AS rejected_points,
    NULL AS push_bytes_max, NULL AS push_bytes_last, NULL AS last_push_at, NULL AS is_member, NULL AS reads_batches,
    NULL AS clock_ahead_s, NULL AS clock_behind_s,
    max(push_interval_ms) / 1000.0 AS push_interval_s,
    -- Brokers have `unknown` for a connection that names no software.
    max_by(client_software_name, CASE WHEN client_software_name <> 'unknown' THEN landed_at END) AS software_name,
    max_by(client_software_version, CASE WHEN client_software_name <> 'unknown' THEN landed_at END) AS software_version,
    NULL AS set_aside, NULL AS duplicates, NULL AS dead_paths, NULL AS silent_after
  FROM pushes
  GROUP BY cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at)

  UNION ALL

  SELECT
    cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at) AS window_start,
    NULL AS metric, NULL AS increase, NULL AS covered_s, NULL AS still_s, NULL AS quarters, NULL AS value_sum,
    NULL AS value_count, NULL AS value_min, NULL AS value_max,
    NULL AS pushes, NULL AS quarantined, NULL AS lost_intervals, NULL AS dropped, NULL AS rejected_points,
    NULL AS push_bytes_max, NULL AS push_bytes_last, NULL AS last_push_at, NULL AS is_member, NULL AS reads_batches,
    NULL AS clock_ahead_s, NULL AS clock_behind_s, NULL AS push_interval_s, NULL AS software_name,
    NULL AS software_version,
    sum(CASE WHEN scope = 'push' AND reason = 'PROCESSING_FAILED' THEN 1 ELSE 0 END) AS set_aside,
    NULL AS duplicates, NULL AS dead_paths, NULL AS silent_after
  FROM quarantine
  GROUP BY cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at)

  UNION ALL

  SELECT
    cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at) AS window_start,
    NULL AS metric, NULL AS increase, NULL AS covered_s, NULL AS still_s, NULL AS quarters, NULL AS value_sum,
    NULL AS value_count, NULL AS value_min, NULL AS value_max,
    NULL AS pushes, NULL AS quarantined, NULL AS lost_intervals, NULL AS dropped, NULL AS rejected_points,
    NULL AS push_bytes_max, NULL AS push_bytes_last, NULL AS last_push_at, NULL AS is_member, NULL AS reads_batches,
    NULL AS clock_ahead_s, NULL AS clock_behind_s, NULL AS push_interval_s, NULL AS software_name,
    NULL AS software_version, NULL AS set_aside,
    sum(CASE WHEN event = 'duplicate_instance' THEN 1 ELSE 0 END) AS duplicates,
    sum(CASE WHEN event = 'data_path_dead' THEN 1 ELSE 0 END) AS dead_paths,
    max(CASE WHEN event = 'went_silent' THEN landed_at END) AS silent_after
  FROM client_events
  GROUP BY cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at)
),

measured AS (
  SELECT
    cluster_id, client_id, client_instance_id, landed_date, window_start,
    max(pushes) AS pushes, max(quarantined) - coalesce(max(set_aside), 0) AS quarantined,
    max(lost_intervals) AS lost_intervals, max(dropped) AS dropped, max(rejected_points) AS rejected_points,
    max(push_bytes_max) AS push_bytes_max, max(push_bytes_last) AS push_bytes_last, max(last_push_at) AS last_push_at,
    max(is_member) AS is_member, max(reads_batches) AS reads_batches, max(clock_ahead_s) AS clock_ahead_s,
    max(clock_behind_s) AS clock_behind_s, max(push_interval_s) AS push_interval_s,
    max(software_name) AS software_name, max(software_version) AS software_version,
    coalesce(max(set_aside), 0) AS set_aside, max(duplicates) AS duplicates, max(dead_paths) AS dead_paths,
    max(silent_after) AS silent_after,
    :measures
  FROM stacked
  GROUP BY cluster_id, client_id, client_instance_id, landed_date, window_start
  HAVING max(pushes) > 0
)

:derived
