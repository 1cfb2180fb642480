-- How far is each consumer group behind, in records and in time, and when does it lose records? One row per group,
-- topic, partition and poll of `telemetry-lake sync`. application, owner: those of its members, now or before, separated by
-- commas. latest: of the last poll of its cluster; filter by it.
-- lag_records: from the committed offset to the end of the log; offsets without a record (compacted, or markers of
-- transactions) count too. time_lag_s: age of the oldest unread record, that is of the record at the committed offset:
-- it was written between the two polls of which the first saw the end of the log at or below that offset, the second
-- above; between them the log is taken to grow evenly. time_lag_error_s: the time between these polls, by which the
-- number may be wrong. time_lag_at_least_s: what is certain. status: caught_up, measured, older_than_history (the
-- record was written before the first poll: time_lag_s is NULL), lost (the log begins after the committed offset:
-- lost_records), ahead_of_log (it ends before the offset: the topic was made anew), no_log (no such topic, or no right
-- to see it). lag_growth_per_s, time_lag_growth: records and seconds per second, since the first of the polls of the
-- last ten minutes that knows the lag. retention_left_s: until retention.ms allows to delete the oldest unread record.
-- lost_in_s: when the lag, growing as it does, reaches the retention; NULL: it doesn't grow, or one of them is unknown.
WITH ends AS (
  SELECT
    cluster_id,
    topic,
    partition,
    unix_micros(sampled_at) AS at,
    max(end_offset) AS end_offset
  FROM group_lag_samples
  WHERE end_offset IS NOT NULL
  GROUP BY cluster_id, topic, partition, unix_micros(sampled_at)
),

shrunk AS (
  SELECT
    *,
    CASE WHEN end_offset < lag(end_offset) OVER (PARTITION BY cluster_id, topic, partition ORDER BY at) THEN 1 ELSE 0 END
      AS anew
  FROM ends
),

-- A topic that is deleted and made again has another log.
logs AS (
  SELECT
    *,
    sum(anew) OVER (PARTITION BY cluster_id, topic, partition ORDER BY at) AS log_number
  FROM shrunk
),

samples AS (
  SELECT
    s.cluster_id,
    s.group_id,
    s.topic,
    s.partition,
    s.sampled_at,
    unix_micros(s.sampled_at) AS at,
    s.committed_offset,
    s.log_start_offset,
    s.end_offset,
    s.retention_ms,
    l.log_number
  FROM group_lag_samples AS s
  LEFT JOIN logs AS l
    ON l.cluster_id = s.cluster_id AND l.topic = s.topic AND l.partition = s.partition
    AND l.at = unix_micros(s.sampled_at)
),

-- Ends and committed offsets of a log by offset, an end before an equal committed offset.
placed AS (
  SELECT
    cluster_id, topic, partition, log_number, end_offset AS place, 1 AS is_end, at, CAST(NULL AS STRING) AS group_id
  FROM logs
  UNION ALL
  SELECT cluster_id, topic, partition, log_number, committed_offset, 0, at, group_id
  FROM samples
  WHERE log_number IS NOT NULL
),

bracketed AS (
  SELECT
    *,
    max(CASE WHEN is_end = 1 THEN at END) OVER until_here AS low_at,
    max(CASE WHEN is_end = 1 THEN place END) OVER until_here AS low_offset,
    min(CASE WHEN is_end = 1 THEN at END) OVER from_here AS high_at,
    min(CASE WHEN is_end = 1 THEN place END) OVER from_here AS high_offset
  FROM placed
  WINDOW
    until_here AS (
      PARTITION BY cluster_id, topic, partition, log_number ORDER BY place, is_end DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ),
    from_here AS (
      PARTITION BY cluster_id, topic, partition, log_number ORDER BY place, is_end DESC
      ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
    )
),

judged AS (
  SELECT
    s.*,
    CASE
      WHEN s.end_offset IS NULL THEN 'no_log'
      WHEN s.committed_offset > s.end_offset THEN 'ahead_of_log'
      WHEN s.committed_offset < s.log_start_offset THEN 'lost'
      WHEN s.committed_offset = s.end_offset THEN 'caught_up'
      WHEN b.low_at IS NULL THEN 'older_than_history'
      ELSE 'measured'
    END AS status,
    b.low_at,
    b.low_offset,
    b.high_at,
    b.high_offset
  FROM samples AS s
  LEFT JOIN bracketed AS b
    ON b.cluster_id = s.cluster_id AND b.topic = s.topic AND b.partition = s.partition
    AND b.log_number = s.log_number AND b.group_id = s.group_id AND b.at = s.at
),

measured AS (
  SELECT
    *,
    CASE WHEN status NOT IN ('no_log', 'ahead_of_log') THEN end_offset - greatest(committed_offset, log_start_offset) END
      AS lag_records,
    CASE
      WHEN status = 'caught_up' THEN 0.0
      WHEN status = 'measured' THEN (
        at - low_at
        - CAST(high_at - low_at AS DOUBLE) * (committed_offset - low_offset) / (high_offset - low_offset)
      ) / 1e6
    END AS time_lag_s,
    CASE status WHEN 'caught_up' THEN 0.0 WHEN 'measured' THEN (high_at - low_at) / 1e6 END AS time_lag_error_s,
    CASE
      WHEN status = 'caught_up' THEN 0.0
      WHEN status IN ('measured', 'older_than_history') THEN (at - high_at) / 1e6
    END AS time_lag_at_least_s,
    CASE WHEN status = 'lost' THEN log_start_offset - committed_offset END AS lost_records
  FROM judged
),

trends AS (
  SELECT
    *,
    (lag_records - first_value(lag_records) IGNORE NULLS OVER ten_minutes) * 1e6
      / nullif(at - min(CASE WHEN lag_records IS NOT NULL THEN at END) OVER ten_minutes, 0) AS lag_growth_per_s,
    (time_lag_s - first_value(time_lag_s) IGNORE NULLS OVER ten_minutes) * 1e6
      / nullif(at - min(CASE WHEN time_lag_s IS NOT NULL THEN at END) OVER ten_minutes, 0) AS time_lag_growth,
    CASE WHEN retention_ms >= 0 THEN retention_ms / 1e3 - time_lag_s END AS retention_left_s,
    at = max(at) OVER (PARTITION BY cluster_id) AS latest
  FROM measured
  WINDOW ten_minutes AS (
    PARTITION BY cluster_id, group_id, topic, partition ORDER BY at RANGE BETWEEN 600000000 PRECEDING AND CURRENT ROW
  )
),

-- Members of the last poll, and instances that said they are in the group: a group may be behind since its members are gone.
owners AS (
  SELECT
    cluster_id,
    group_id,
    nullif(array_join(array_sort(array_distinct(collect_list(application))), ', '), '') AS application,
    nullif(array_join(array_sort(array_distinct(collect_list(owner))), ', '), '') AS owner
  FROM (
    SELECT cluster_id, group_id, application, owner
    FROM consumer_group_members
    UNION ALL
    SELECT cluster_id, element_at(labels, 'group_id'), application, owner
    FROM clients
  ) AS of_group
  GROUP BY cluster_id, group_id
)

SELECT
  t.cluster_id,
  t.group_id,
  o.application,
  o.owner,
  topic,
  partition,
  sampled_at,
  latest,
  status,
  lag_records,
  time_lag_s,
  time_lag_error_s,
  time_lag_at_least_s,
  lag_growth_per_s,
  time_lag_growth,
  retention_left_s,
  -- Not greatest(), for which NULL would be 0.
  CASE WHEN time_lag_growth > 0 THEN CASE WHEN retention_left_s < 0 THEN 0.0 ELSE retention_left_s END / time_lag_growth END
    AS lost_in_s,
  lost_records,
  committed_offset,
  log_start_offset,
  end_offset,
  retention_ms
FROM trends AS t
LEFT JOIN owners AS o
  ON o.cluster_id = t.cluster_id AND o.group_id = t.group_id
