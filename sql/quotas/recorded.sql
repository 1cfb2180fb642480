-- Which entities did brokers sample?
-- In DuckDB's dialect.
SELECT DISTINCT "user", client_id FROM quota_samples
WHERE quota_type = ':quota_type' AND landed_date :days AND time :between
ORDER BY ALL LIMIT :most
