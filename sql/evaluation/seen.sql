-- In which hours did the client ids and principals of relation subjects push?
-- In DuckDB's dialect.
SELECT DISTINCT cluster_id, epoch_us(landed_at) // 3600000000 AS hour, 'client_id' AS scope, client_id AS subject
FROM push_outcomes AS o
WHERE EXISTS (
    SELECT 1 FROM subjects AS s WHERE s.scope = 'client_id'
    AND s.subject IS NOT DISTINCT FROM o.client_id AND s.cluster_id IS NOT DISTINCT FROM o.cluster_id
)
UNION ALL
SELECT DISTINCT cluster_id, epoch_us(landed_at) // 3600000000, 'principal', principal
FROM pushes AS p
WHERE EXISTS (
    SELECT 1 FROM subjects AS s WHERE s.scope = 'principal'
    AND s.subject IS NOT DISTINCT FROM p.principal AND s.cluster_id IS NOT DISTINCT FROM p.cluster_id
)
