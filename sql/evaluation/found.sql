-- What does view findings have, with the principal, application and owner of each row's client id?
-- hour: hours since 1970.
-- In DuckDB's dialect.
WITH found AS MATERIALIZED (SELECT * FROM findings),
principals AS (
    SELECT cluster_id, client_id, date_trunc('hour', landed_at) AS window_start,
           max_by(principal, landed_at) AS principal
    FROM pushes AS p
    WHERE EXISTS (SELECT 1 FROM found AS f WHERE f.client_id = p.client_id)
    GROUP BY 1, 2, 3
),
aliases AS (
    SELECT * FROM client_aliases
    WHERE client_instance_id IS NULL AND valid_to IS NULL
    QUALIFY row_number() OVER (PARTITION BY client_id, cluster_id ORDER BY valid_from DESC) = 1
),
-- A client id that several applications use, by their instances' rules, has all of them: none is a guess.
ruled AS (
    SELECT f.cluster_id, f.client_id, f.window_start,
           string_agg(DISTINCT c.application, ', ' ORDER BY c.application) AS application,
           string_agg(DISTINCT c.owner, ', ' ORDER BY c.owner) AS owner
    FROM (SELECT DISTINCT cluster_id, client_id, window_start FROM found) AS f
    JOIN clients AS c
      ON c.client_id = f.client_id AND c.cluster_id IS NOT DISTINCT FROM f.cluster_id
      AND c.last_seen >= f.window_start AND c.first_seen < f.window_start + INTERVAL 1 HOUR
    WHERE c.owned_by LIKE 'rule %'
    GROUP BY 1, 2, 3
)
SELECT f.cluster_id, epoch_us(f.window_start) // 3600000000 AS hour, finding, severity, scope, subject, f.client_id,
       CASE WHEN scope = 'principal' THEN subject ELSE p.principal END AS principal,
       coalesce(own.application, any_cluster.application, r.application) AS application,
       CASE WHEN coalesce(own.application, any_cluster.application) IS NULL THEN r.owner
            ELSE coalesce(own.owner, any_cluster.owner) END AS owner,
       CAST(measure AS DOUBLE) AS measure, CAST(instances AS BIGINT) AS instances,
       CAST(instances_affected AS BIGINT) AS instances_affected, worst_instance, evidence, advice
FROM found AS f
LEFT JOIN principals AS p
  ON p.client_id = f.client_id AND p.window_start = f.window_start
  AND p.cluster_id IS NOT DISTINCT FROM f.cluster_id
LEFT JOIN aliases AS own ON own.client_id = f.client_id AND own.cluster_id = f.cluster_id
LEFT JOIN aliases AS any_cluster ON any_cluster.client_id = f.client_id AND any_cluster.cluster_id IS NULL
LEFT JOIN ruled AS r
  ON r.client_id = f.client_id AND r.window_start = f.window_start
  AND r.cluster_id IS NOT DISTINCT FROM f.cluster_id
