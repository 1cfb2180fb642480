-- What are the rates? Those next to each other that the proposal unites.
-- In DuckDB's dialect.
SELECT cluster_id, broker_id, "user", client_id, at, rate FROM recorded WHERE :named
ORDER BY cluster_id, broker_id, :united, "user", client_id, at
