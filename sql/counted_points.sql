-- Which points of Kafka's own metrics count? One row per point of metric_points, except points that were pushed twice
-- or too late. name: the metric without `org.apache.kafka.`. Filter by metric, by which the files are sorted.
SELECT
  cluster_id,
  client_instance_id,
  metric,
  substring(metric, 18) AS name,
  attributes,
  element_at(attributes, 'topic') AS of_topic,
  date_trunc('minute', time) AS minute,
  landed_at,
  value,
  delta
FROM metric_points
WHERE metric LIKE 'org.apache.kafka.%'
  AND delta_status NOT IN ('duplicate', 'conflict', 'too_late')
