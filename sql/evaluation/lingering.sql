-- In which hours does view findings have the findings of relation lingering?
-- In DuckDB's dialect.
SELECT cluster_id, epoch_us(window_start) // 3600000000 AS hour, scope, subject, finding
FROM findings AS f SEMI JOIN lingering AS l
  ON l.finding = f.finding AND l.subject IS NOT DISTINCT FROM f.subject
  AND l.cluster_id IS NOT DISTINCT FROM f.cluster_id
