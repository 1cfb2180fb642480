-- How did these metrics of a client instance change over time? increase per second of counters, mean and largest value of
-- gauges; at the level of the whole client, or the sum over its topics and nodes where it pushes the metric only there.
SELECT
  CAST(floor(unix_millis(time) / :step_ms) * :step_ms AS BIGINT) AS at_ms,
  metric,
  sum(delta) * 1000.0 / :step_ms AS per_second,
  avg(value) AS mean,
  max(value) AS most
FROM metric_points
WHERE client_instance_id = :instance AND array_contains(:metrics, metric) AND landed_at >= :start AND landed_at < :stop
  AND (coalesce(size(map_keys(attributes)), 0) <= 0 OR metric NOT IN (
    'org.apache.kafka.consumer.fetch.manager.records.consumed.total',
    'org.apache.kafka.consumer.fetch.manager.bytes.consumed.total'
  ))
GROUP BY at_ms, metric
ORDER BY metric, at_ms
