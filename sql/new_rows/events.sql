-- What happened to clients since a time?
-- In DuckDB's dialect.
SELECT e.client_instance_id, e.client_id, event, e."at", l.likely_cause
FROM client_events AS e LEFT JOIN client_liveness AS l USING (client_instance_id)
WHERE e.landed_at >= TIMESTAMPTZ ':since' AND e.client_id IS NOT NULL ORDER BY e."at", e.client_id
