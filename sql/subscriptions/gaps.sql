-- How long is it between the pushes of each?
-- In DuckDB's dialect.
SELECT client_instance_id, median(gap_ms)::DOUBLE AS gap_ms FROM (
    SELECT client_instance_id,
        epoch_ms(landed_at) - lag(epoch_ms(landed_at)) OVER (PARTITION BY client_instance_id ORDER BY landed_at)
        AS gap_ms
    FROM dated
) WHERE gap_ms > 0 GROUP BY client_instance_id
