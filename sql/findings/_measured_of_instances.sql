SELECT
  cluster_id, :subject AS subject, client_instance_id, window_start, landed_date,
  CAST(:measure AS DOUBLE) AS measure, CAST(:opens AS DOUBLE) AS opens, CAST(:closes AS DOUBLE) AS closes,
  coalesce(:condition, FALSE) AS has_it, :severity AS severity, :is_known AS is_known
FROM instance_hours
