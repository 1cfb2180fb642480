-- Which applications are there?
-- In DuckDB's dialect.
SELECT DISTINCT application FROM clients WHERE application IS NOT NULL ORDER BY 1 LIMIT 10000
