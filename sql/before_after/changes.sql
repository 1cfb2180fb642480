-- What else is known to have changed about an application's client ids around a moment? The first of each kind first.
-- In DuckDB's dialect.
WITH own AS (
    SELECT DISTINCT coalesce(cluster_id, '') AS cluster_id, coalesce(client_id, '') AS client_id
    FROM clients WHERE application = :application
)
SELECT change, count(*) AS changes, count(DISTINCT client_id) AS client_ids, min(c."at") AS "first", max(c."at") AS "last",
       min_by(client_id, (c."at", client_id)) AS client_id, min_by("before", (c."at", client_id)) AS "before",
       min_by("after", (c."at", client_id)) AS "after"
FROM client_id_changes AS c SEMI JOIN own AS o
  ON o.cluster_id = coalesce(c.cluster_id, '') AND o.client_id = coalesce(c.client_id, '')
WHERE c."at" >= :start AND c."at" < :stop
GROUP BY 1 ORDER BY "first", change
