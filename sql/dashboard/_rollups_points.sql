-- What did each point of the selected clients add? Columns of the rollups, for ranges too short for one-minute windows.
-- Java consumers push the two metrics named here per client and per topic: the rows per topic are excluded.
SELECT time AS at, cluster_id, coalesce(client_id, '') AS client_id, metric, 1 AS points, delta AS increase,
  CASE WHEN delta IS NULL THEN 0.0 ELSE (unix_micros(time) - unix_micros(delta_start)) / 1000000.0 END AS covered_s,
  CAST(delta_status IN ('reset', 'inferred_reset') AS INT) AS resets,
  CAST(delta_status IN ('baseline', 'flip_baseline') AS INT) AS baselines,
  CAST(delta_status IN ('late', 'duplicate', 'conflict', 'too_late') AS INT) AS refused,
  CAST(value IS NOT NULL AS INT) AS value_count, value AS value_sum, value AS value_min, value AS value_max,
  CASE WHEN value > 0 THEN time END AS above_0_at
FROM metric_points
WHERE time >= :start AND time < :stop AND landed_at >= :start AND client_instance_id IN (
  SELECT client_instance_id FROM chosen
)
  AND (coalesce(size(map_keys(attributes)), 0) <= 0 OR metric NOT IN (
    'org.apache.kafka.consumer.fetch.manager.records.consumed.total',
    'org.apache.kafka.consumer.fetch.manager.bytes.consumed.total'
  ))
