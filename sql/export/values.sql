-- What are the values of each gauge? The greatest label sets, and the rest in one row.
-- In DuckDB's dialect.
WITH of_labels AS (
  SELECT p.cluster_id, :labels, c.measure, sum(p.value) AS total, count(*) AS number, max(p.value) AS most
  FROM points AS p JOIN levels AS c ON c.metric = p.metric AND (NOT c.above_zero OR p.value > 0)
  WHERE p.value IS NOT NULL AND p.topic IS NULL
  GROUP BY ALL
),
placed AS (
  SELECT *, row_number() OVER (
    PARTITION BY measure
    ORDER BY CASE WHEN measure IN :means THEN total / number ELSE most END DESC, cluster_id, :names
  ) AS place
  FROM of_labels
)
SELECT measure, true AS has_series, cluster_id, :names, total, number, most FROM placed WHERE place <= :top
UNION ALL
SELECT measure, false, '', :nothing, sum(total), sum(number), max(most)
FROM placed WHERE place > :top GROUP BY measure
