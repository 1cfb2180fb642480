-- How far is each consumer group behind, in records and in time, and when does it lose records? One row per group,
-- topic, partition and poll of `telemetry-lake sync`. application, owner: those of its members, now or before, separated by
-- commas. latest: of the last poll of its cluster; filter by it.
-- Not every offset has a record: markers of transactions, records of aborted ones and those that compaction removed take
-- up offsets too. oldest_unread_offset: of the first record that a read_committed consumer would get, if sync looked
-- (needs Read on the topic). lag_records: offsets from there (else from the committed offset) to the end of the log, so at
-- most so many records. time_lag_s: age of the oldest unread record:
-- it was written between the two polls of which the first saw the end of the log at or below its offset, the second
-- above; between them the log is taken to grow evenly. time_lag_error_s: the time between these polls, by which the
-- number may be wrong. time_lag_at_least_s: what is certain; NULL: nothing. status: caught_up (no record is left),
-- open_transaction (all committed records are read; from stable_offset on the log waits for the end of a transaction),
-- measured, older_than_history (the record was written before the first poll: time_lag_s is NULL), unchecked (offsets are
-- left, and nobody looked whether one has a record: times are NULL), lost (an unread record that was there is deleted:
-- lost_records, at most), maybe_lost (the log begins after the committed offset, and whether the offsets before had records
-- isn't known), ahead_of_log (it ends before the offset: the topic was made anew), no_log (no such topic, or no right
-- to see it), no_leader, no_answer (problem: of the partition), no_offsets (problem: of the group, which may be listed but
-- not described; topic is NULL). offset_age_s: how long ago the log grew beyond the first offset that is left, whatever it
-- has. lag_growth_per_s, time_lag_growth: records and seconds per second, since the first of the polls of the
-- last ten minutes that knows the lag. retention_left_s: until retention.ms allows to delete the oldest unread record.
-- lost_in_s: when the lag, growing as it does, reaches the retention; NULL: it doesn't grow, or one of them is unknown.
WITH ends AS (
  SELECT
    cluster_id,
    topic,
    partition,
    unix_micros(sampled_at) AS at,
    max(end_offset) AS end_offset,
    max(topic_id) AS topic_id
  FROM group_lag_samples
  WHERE end_offset IS NOT NULL
  GROUP BY cluster_id, topic, partition, unix_micros(sampled_at)
),

shrunk AS (
  SELECT
    *,
    CASE
      WHEN end_offset < lag(end_offset) OVER (PARTITION BY cluster_id, topic, partition ORDER BY at)
        OR topic_id <> lag(topic_id) OVER (PARTITION BY cluster_id, topic, partition ORDER BY at) THEN 1 ELSE 0
    END AS anew
  FROM ends
),

-- A topic that is deleted and made again has another log.
logs AS (
  SELECT
    *,
    sum(anew) OVER (PARTITION BY cluster_id, topic, partition ORDER BY at) AS log_number
  FROM shrunk
),

-- stable: where read_committed consumers end, if the poll knows it. no_record_before: from the committed offset on there
-- is none.
sampled AS (
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
    s.stable_offset,
    coalesce(s.stable_offset, s.end_offset) AS stable,
    s.retention_ms,
    s.problem,
    l.log_number,
    greatest(s.committed_offset, coalesce(s.log_start_offset, s.committed_offset)) AS read_from,
    s.next_record_offset,
    CASE WHEN s.next_record_offset < s.stable_offset THEN s.next_record_offset END AS oldest_unread_offset,
    CASE WHEN s.committed_offset >= s.log_start_offset THEN s.next_record_offset END AS no_record_before
  FROM group_lag_samples AS s
  LEFT JOIN logs AS l
    ON l.cluster_id = s.cluster_id AND l.topic = s.topic AND l.partition = s.partition
    AND l.at = unix_micros(s.sampled_at)
),

samples AS (
  SELECT
    *,
    read_from >= stable OR next_record_offset >= stable AS none_left,
    CASE
      WHEN read_from >= stable OR next_record_offset >= stable THEN greatest(read_from, stable)
      ELSE coalesce(oldest_unread_offset, read_from)
    END AS left_from,
    -- What polls saw of the same committed offset while the log still had it.
    last_value(CASE WHEN no_record_before < stable THEN no_record_before END) IGNORE NULLS OVER so_far AS seen_record,
    max(no_record_before) OVER so_far AS seen_empty
  FROM sampled
  WINDOW so_far AS (
    PARTITION BY cluster_id, group_id, topic, partition, log_number, committed_offset ORDER BY at
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
),

-- Ends and first unread offsets of a log by offset, an end before an equal other one.
placed AS (
  SELECT
    cluster_id, topic, partition, log_number, end_offset AS place, 1 AS is_end, at, CAST(NULL AS STRING) AS group_id
  FROM logs
  UNION ALL
  SELECT cluster_id, topic, partition, log_number, left_from, 0, at, group_id
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
      WHEN s.topic IS NULL THEN 'no_offsets'
      WHEN s.end_offset IS NULL AND s.problem IS NULL THEN 'no_log'
      WHEN s.end_offset IS NULL AND s.problem = 'no leader' THEN 'no_leader'
      WHEN s.end_offset IS NULL THEN 'no_answer'
      WHEN s.committed_offset > s.end_offset THEN 'ahead_of_log'
      WHEN s.committed_offset < s.log_start_offset AND s.seen_record < s.log_start_offset THEN 'lost'
      WHEN s.committed_offset < s.log_start_offset AND coalesce(s.seen_empty < s.log_start_offset, TRUE) THEN 'maybe_lost'
      WHEN s.none_left AND s.left_from >= s.end_offset THEN 'caught_up'
      WHEN s.none_left THEN 'open_transaction'
      WHEN s.oldest_unread_offset IS NULL THEN 'unchecked'
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

aged AS (
  SELECT
    *,
    CASE
      WHEN left_from < end_offset THEN (
        at - low_at - CAST(high_at - low_at AS DOUBLE) * (left_from - low_offset) / (high_offset - low_offset)
      ) / 1e6
    END AS offset_age_s
  FROM judged
),

measured AS (
  SELECT
    *,
    CASE WHEN status <> 'ahead_of_log' THEN end_offset - left_from END AS lag_records,
    CASE status WHEN 'caught_up' THEN 0.0 WHEN 'measured' THEN offset_age_s END AS time_lag_s,
    CASE status WHEN 'caught_up' THEN 0.0 WHEN 'measured' THEN (high_at - low_at) / 1e6 END AS time_lag_error_s,
    CASE
      WHEN status = 'caught_up' THEN 0.0
      WHEN status IN ('measured', 'older_than_history') THEN (at - high_at) / 1e6
    END AS time_lag_at_least_s,
    CASE WHEN status = 'lost' THEN log_start_offset - seen_record END AS lost_records
  FROM aged
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
  retention_ms,
  stable_offset,
  oldest_unread_offset,
  offset_age_s,
  problem
FROM trends AS t
LEFT JOIN owners AS o
  ON o.cluster_id = t.cluster_id AND o.group_id = t.group_id
