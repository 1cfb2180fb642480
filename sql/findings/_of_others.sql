UNION ALL

SELECT
  cluster_id, client_id, window_start, :id AS finding, :severity AS severity,
  concat(:evidence, ', in the hour from ', date_format(window_start, 'yyyy-MM-dd HH:mm'), ' UTC') AS evidence,
  :advice AS advice, :scope AS scope, subject, instances, instances_affected, worst_instance,
  CAST(:measure AS DOUBLE) AS measure, landed_date
FROM (
:reads
) AS r
WHERE :condition
