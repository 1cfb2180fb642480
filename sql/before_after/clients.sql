-- Which client ids has an application, and from when to when were they recorded?
-- shared: client ids that other clients use too, and one of them. first, last: start of the first and last window. goes_on: more
-- was recorded later.
-- In DuckDB's dialect.
WITH own AS (
    SELECT coalesce(cluster_id, '') AS cluster_id, coalesce(client_id, '') AS client_id,
           count(*) FILTER (application = :application) AS instances,
           count(*) FILTER (application IS DISTINCT FROM :application) AS others
    FROM clients GROUP BY 1, 2 HAVING instances > 0
),
extent AS (
    SELECT min(window_start) AS "first", max(window_start) AS "last"
    FROM :rollups AS r SEMI JOIN own AS o
      ON o.cluster_id = coalesce(r.cluster_id, '') AND o.client_id = coalesce(r.client_id, '')
    WHERE window_start >= :start AND window_start < :stop AND landed_date >= :day
)
SELECT count(*) AS client_ids, coalesce(sum(instances), 0) AS instances, count(*) FILTER (others > 0) AS shared,
       min(client_id) FILTER (others > 0) AS shared_one, any_value(e."first") AS "first", any_value(e."last") AS "last",
       EXISTS (
           SELECT 1 FROM :rollups AS r SEMI JOIN own AS o
             ON o.cluster_id = coalesce(r.cluster_id, '') AND o.client_id = coalesce(r.client_id, '')
           WHERE window_start >= :stop AND landed_date >= :last_day
       ) AS goes_on
FROM own, extent AS e
