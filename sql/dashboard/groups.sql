-- How are the consumer groups doing?
-- A group's row sums over the client ids seen in it; a client id in two groups counts in both.
WITH members AS (
  SELECT group_id, client_id, count(*) AS instances
  FROM chosen
  WHERE group_id IS NOT NULL
  GROUP BY group_id, client_id
),

sized AS (
  SELECT group_id, sum(instances) AS instances, count(*) AS client_ids FROM members GROUP BY group_id
),

used AS (
  SELECT
    m.group_id,
    max(CASE WHEN r.metric LIKE '%.records.lag.max' THEN r.value_max END) AS lag_max,
    sum(CASE WHEN r.metric LIKE '%.coordinator.rebalance.total' THEN r.increase END) AS rebalances,
    sum(CASE WHEN r.metric LIKE '%.failed.rebalance.total' THEN r.increase END) AS failed_rebalances,
    sum(CASE WHEN r.metric LIKE '%.commit.latency.avg' THEN r.value_sum END)
    / nullif(sum(CASE WHEN r.metric LIKE '%.commit.latency.avg' THEN r.value_count END), 0) AS commit_latency_ms,
    sum(CASE WHEN r.metric LIKE '%.poll.idle.ratio.avg' THEN r.value_sum END)
    / nullif(sum(CASE WHEN r.metric LIKE '%.poll.idle.ratio.avg' THEN r.value_count END), 0) AS poll_idle_ratio,
    max(CASE WHEN r.metric LIKE '%.time.between.poll.max' THEN r.value_max END) AS between_polls_max_ms
  FROM rollups AS r
  JOIN members AS m
    ON m.client_id = r.client_id
  WHERE array_contains(:metrics, r.metric)
  GROUP BY m.group_id
)

SELECT s.group_id, s.instances, s.client_ids, u.lag_max, u.rebalances, u.failed_rebalances, u.commit_latency_ms,
  u.poll_idle_ratio, u.between_polls_max_ms
FROM sized AS s
LEFT JOIN used AS u
  ON u.group_id = s.group_id
ORDER BY u.lag_max DESC NULLS LAST, s.group_id
