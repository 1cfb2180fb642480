-- What does each counter add? The label sets that have a series, the greatest of the others, and the rest in one row.
-- In DuckDB's dialect.
WITH sums AS (
  SELECT p.cluster_id, :labels, c.measure, sum(p.delta) AS increase, max(p.seen) AS seen
  FROM counted_once AS p
  JOIN counted AS c ON c.metric = p.metric AND (c.with_topic IS NULL OR c.with_topic = (p.topic IS NOT NULL))
  WHERE c.level = ':level' AND p.delta IS NOT NULL
  GROUP BY ALL
),
placed AS (
  SELECT s.*, o.measure IS NOT NULL AS is_own,
    row_number() OVER (
      PARTITION BY s.measure, o.measure IS NULL ORDER BY s.increase DESC, s.cluster_id, :names
    ) AS place
  FROM sums AS s LEFT JOIN own AS o USING (measure, cluster_id, :names)
)
SELECT measure, is_own OR place <= :top AS has_series, cluster_id, :names, increase, seen
FROM placed WHERE is_own OR place <= :top
UNION ALL
SELECT measure, false, '', :nothing, sum(increase), max(seen)
FROM placed WHERE NOT is_own AND place > :top GROUP BY measure
ORDER BY measure, has_series DESC, increase DESC
