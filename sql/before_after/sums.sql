-- What did an application's clients add in each step of time, by measure? And in which bins was anything pushed?
-- A measure is a metric at one level: that without attributes if any client pushes it, else each of the others.
-- step: steps from the moment on; -1 and less are before it. bin: numbers of minutes or hours; in rows without a metric.
-- counted: the increase if it counts things, which are whole numbers. is_sum: its points are sums; the value of one, such as a
-- counter's total, is no measure, so value_sum and value_count are without. :most: of so many measures, those with the most points.
-- In DuckDB's dialect.
WITH own AS (
    SELECT DISTINCT coalesce(cluster_id, '') AS cluster_id, coalesce(client_id, '') AS client_id
    FROM clients WHERE application = :application
),
recorded AS MATERIALIZED (
    SELECT epoch_us(window_start) // :bin_us AS bin, metric, coalesce(attribute_keys, '') AS attribute_keys,
           sum(points) AS points, sum(increase) AS increase, count(increase) AS increases,
           sum(CAST(increase_int AS DOUBLE)) AS counted, count(increase_int) AS counts, sum(covered_s) AS covered_s,
           sum(value_sum) FILTER (kind IS DISTINCT FROM 'sum') AS value_sum,
           sum(value_count) FILTER (kind IS DISTINCT FROM 'sum') AS value_count,
           sum(observed_sum) AS observed_sum, sum(observations) AS observations, coalesce(bool_or(kind = 'sum'), false) AS is_sum
    FROM :rollups AS r SEMI JOIN own AS o
      ON o.cluster_id = coalesce(r.cluster_id, '') AND o.client_id = coalesce(r.client_id, '')
    WHERE window_start >= :start AND window_start < :stop AND landed_date >= :day
    GROUP BY 1, 2, 3
),
whole AS (SELECT DISTINCT metric FROM recorded WHERE attribute_keys = ''),
measures AS (
    SELECT metric, attribute_keys, sum(points) AS points FROM recorded
    WHERE attribute_keys = '' OR metric NOT IN (FROM whole)
    GROUP BY 1, 2 ORDER BY points DESC, metric, attribute_keys LIMIT :most
)
SELECT metric, attribute_keys,
       CAST(floor(CASE WHEN bin >= :after THEN bin - :after ELSE bin - :before END / :bins) AS BIGINT) AS step,
       CAST(NULL AS BIGINT) AS bin,
       sum(increase) AS increase, sum(covered_s) AS covered_s,
       CASE WHEN sum(counts) = sum(increases) THEN sum(counted) END AS counted,
       sum(value_sum) AS value_sum, sum(value_count) AS value_count,
       sum(observed_sum) AS observed_sum, sum(observations) AS observations, bool_or(is_sum) AS is_sum
FROM recorded SEMI JOIN measures USING (metric, attribute_keys)
WHERE bin < :before OR bin >= :after
GROUP BY 1, 2, 3
UNION ALL
SELECT DISTINCT NULL, NULL, NULL, bin, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM recorded
ORDER BY ALL
