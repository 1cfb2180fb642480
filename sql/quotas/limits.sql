-- Which limits were configured at the end?
-- In DuckDB's dialect.
SELECT cluster_id, "user", client_id, quota_limit FROM quotas
WHERE quota_type = ':quota_type' AND ip = '' AND valid_from < TIMESTAMPTZ ':end'
    AND (valid_to IS NULL OR valid_to >= TIMESTAMPTZ ':end')
