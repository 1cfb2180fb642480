-- Which points count once? A consumer pushes a topic with a dot twice, with the dot and as _ (KIP-1109): the dot counts.
-- In DuckDB's dialect.
SELECT p.*
FROM points AS p
LEFT JOIN (
  SELECT DISTINCT cluster_id, client_instance_id, metric, replace(topic, '.', '_') AS topic
  FROM points WHERE topic LIKE '%.%' AND metric LIKE '%consumer.%'
) AS d USING (cluster_id, client_instance_id, metric, topic)
WHERE d.topic IS NULL
