-- Which clients don't deliver the metrics they are asked for? Per subscription, prefix, client software and version.
-- delivering = 0: no client of this version ever pushed a metric with the prefix, although subscribed.
WITH asked AS (
  SELECT DISTINCT s.cluster_id, s.subscription, prefix, p.client_software_name, p.client_software_version,
    p.client_instance_id, s.source, s.topic, s.partition, s.offset, s.landed_at
  FROM push_subscriptions AS s
  JOIN pushes AS p
    ON p.source = s.source AND p.topic = s.topic AND p.partition = s.partition AND p.offset = s.offset
    AND p.landed_at = s.landed_at
  LATERAL VIEW explode(s.prefixes) AS prefix
  WHERE s.matches
),

received AS (
  SELECT DISTINCT source, topic, partition, offset, landed_at, metric
  FROM metric_points
)

SELECT
  a.cluster_id,
  a.subscription,
  a.prefix,
  a.client_software_name,
  a.client_software_version,
  count(DISTINCT a.client_instance_id) AS asked,
  count(DISTINCT CASE WHEN r.metric IS NOT NULL THEN a.client_instance_id END) AS delivering,
  count(DISTINCT r.metric) AS metrics
FROM asked AS a
LEFT JOIN received AS r
  ON r.source = a.source AND r.topic = a.topic AND r.partition = a.partition AND r.offset = a.offset
  AND r.landed_at = a.landed_at AND (a.prefix = '*' OR startswith(r.metric, a.prefix))
GROUP BY a.cluster_id, a.subscription, a.prefix, a.client_software_name, a.client_software_version
