-- When did the newest push of a cluster land?
-- In DuckDB's dialect.
SELECT max(landed_at) AS landed_at FROM push_outcomes WHERE cluster_id = :cluster
