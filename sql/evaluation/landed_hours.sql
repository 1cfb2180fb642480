-- In which hours did the pushes of relation landed land, up to when (microseconds), and how many?
-- In DuckDB's dialect.
SELECT cluster_id, epoch_us(landed_at) // 3600000000 AS hour, max(epoch_us(landed_at)) AS latest, count(*) AS pushes
FROM landed GROUP BY 1, 2
