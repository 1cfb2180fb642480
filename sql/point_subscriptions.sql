-- Which subscriptions asked for each point? Rows of metric_points with the names of the subscriptions; empty: none.
-- NULL: unknown, because the patterns of a subscription can't be evaluated here.
WITH asked AS (
  SELECT
    p.source,
    p.topic,
    p.partition,
    p.offset,
    p.landed_at,
    p.metric,
    sort_array(collect_list(CASE WHEN s.matches THEN s.subscription END)) AS names,
    count(*) - count(s.matches) AS open
  FROM (SELECT DISTINCT source, topic, partition, offset, landed_at, metric FROM metric_points) AS p
  JOIN push_subscriptions AS s
    ON s.source = p.source AND s.topic = p.topic AND s.partition = p.partition AND s.offset = p.offset
    AND s.landed_at = p.landed_at
  WHERE size(filter(s.prefixes, prefix -> prefix = '*' OR startswith(p.metric, prefix))) > 0
  GROUP BY p.source, p.topic, p.partition, p.offset, p.landed_at, p.metric
)

SELECT
  p.* EXCEPT (subscriptions),
  CASE WHEN a.open > 0 THEN NULL WHEN a.open = 0 THEN a.names ELSE array() END AS subscriptions
FROM metric_points AS p
LEFT JOIN asked AS a
  ON a.source = p.source AND a.topic = p.topic AND a.partition = p.partition AND a.offset = p.offset
  AND a.landed_at = p.landed_at AND a.metric = p.metric
