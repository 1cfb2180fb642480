-- Which points count, with what is known of their clients?
-- In DuckDB's dialect.
SELECT
  coalesce(p.cluster_id, '') AS cluster_id, p.client_instance_id, p.client_id, p.metric,
  list_extract(map_extract(p.attributes, 'topic'), 1) AS topic,
  p.value, p.delta, epoch_us(p.landed_at) / 1e6 AS seen,
  k.application, k.client_software_name, k.client_software_version
FROM :points AS p
LEFT JOIN known AS k ON k.cluster_id IS NOT DISTINCT FROM p.cluster_id AND k.client_instance_id = p.client_instance_id
WHERE p.metric IN :metrics AND p.delta_status NOT IN :uncounted
