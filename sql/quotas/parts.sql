-- How many samples are there of each entity?
-- In DuckDB's dialect.
SELECT cluster_id, broker_id, "user", client_id, source, count(*) AS samples, bool_or(throttled) AS throttled
FROM recorded GROUP BY ALL
