-- In which slots of time did anything land?
-- In DuckDB's dialect.
SELECT DISTINCT floor((epoch(landed_at) - epoch(TIMESTAMPTZ ':start')) / :slot)::BIGINT AS slot
FROM push_outcomes WHERE landed_date :days AND landed_at :between AND cluster_id = :cluster
