-- What did the selected clients add to each window? The rows of metric_rollups_1h in the time range.
-- Java consumers push the two metrics named here per client and per topic: the rows per topic are excluded.
SELECT window_start AS at, cluster_id, coalesce(client_id, '') AS client_id, metric, points, increase, covered_s, resets, baselines,
  refused, value_count, value_sum, value_min, value_max,
  CASE WHEN value_max > 0 THEN window_start END AS above_0_at
FROM metric_rollups_1h
WHERE window_start >= :first_window AND window_start < :stop
  AND (coalesce(cluster_id, ''), coalesce(client_id, '')) IN (SELECT coalesce(cluster_id, ''), client_id FROM chosen)
  AND (coalesce(attribute_keys, '') = '' OR metric NOT IN (
    'org.apache.kafka.consumer.fetch.manager.records.consumed.total',
    'org.apache.kafka.consumer.fetch.manager.bytes.consumed.total'
  ))
