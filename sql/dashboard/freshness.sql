-- How long does a push take from the broker to the topic, over time? By the clocks of the receiver and the topic.
SELECT
  CAST(floor(unix_millis(landed_at) / :step_ms) * :step_ms AS BIGINT) AS at_ms,
  percentile_cont(0.5) WITHIN GROUP (ORDER BY (unix_micros(landed_at) - unix_micros(received_at)) / 1000.0) AS typical_ms,
  percentile_cont(0.95) WITHIN GROUP (ORDER BY (unix_micros(landed_at) - unix_micros(received_at)) / 1000.0) AS high_ms
FROM pushes
WHERE landed_at >= :start AND landed_at < :stop AND received_at IS NOT NULL
GROUP BY at_ms
ORDER BY at_ms
