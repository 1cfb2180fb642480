-- What is wrong with clients since a time?
-- In DuckDB's dialect.
SELECT client_id, finding, evidence, advice FROM findings
WHERE landed_date >= CAST(TIMESTAMPTZ ':since' AS DATE) AND window_start >= TIMESTAMPTZ ':since'
  AND severity <> 'info' ORDER BY client_id, finding
