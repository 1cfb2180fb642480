-- How far were the groups of a topic, or the topics of a group, behind? The sum over partitions of each window's last poll.
-- Offsets from the first one that may have an unread record: at most so many records.
WITH polled AS (
  SELECT
    CAST(floor(unix_millis(sampled_at) / :step_ms) * :step_ms AS BIGINT) AS at_ms, cluster_id, group_id, topic, partition,
    max_by(
      greatest(
        end_offset - greatest(
          committed_offset, coalesce(log_start_offset, committed_offset),
          CASE WHEN next_record_offset IS NULL THEN committed_offset ELSE least(next_record_offset, stable_offset) END
        ), 0
      ), sampled_at
    ) AS lag_records
  FROM group_lag_samples
  WHERE sampled_at >= :start AND sampled_at < :stop AND topic IS NOT NULL
    AND (group_id = :group OR topic = :topic)
  GROUP BY at_ms, cluster_id, group_id, topic, partition
)

SELECT at_ms, group_id, topic, sum(lag_records) AS lag_records
FROM polled
GROUP BY at_ms, group_id, topic
ORDER BY group_id, topic, at_ms
