-- Which client ids have the most of these metrics? One row per client id and metric, the :top client ids of each metric.
-- rate: increase per second of the time that its deltas cover. amount: the value that determines the rank.
WITH summed AS (
  SELECT
    client_id,
    metric,
    sum(points) AS points,
    sum(increase) AS increase,
    sum(increase) / nullif(sum(covered_s), 0) AS rate,
    sum(value_sum) / nullif(sum(value_count), 0) AS mean,
    max(value_max) AS most
  FROM rollups
  WHERE array_contains(:metrics, metric)
  GROUP BY client_id, metric
),

ranked AS (
  SELECT *, row_number() OVER (PARTITION BY metric ORDER BY coalesce(increase, most) DESC NULLS LAST, client_id) AS place
  FROM summed
)

SELECT client_id, metric, points, increase, rate, mean, most, place
FROM ranked
WHERE place <= :top
ORDER BY metric, place
