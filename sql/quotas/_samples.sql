-- What did brokers sample of each entity? Where a broker has nothing of it, what clients' own byte counters say.
-- In DuckDB's dialect.
WITH sampled AS (
    SELECT cluster_id, broker_id, "user", client_id, 'broker' AS source, time AS at, observed_rate AS rate,
           coalesce(throttle_time_ms, 0) > 0 AS throttled
    FROM quota_samples
    WHERE quota_type = ':quota_type' AND observed_rate IS NOT NULL AND landed_date :days AND time :between
), estimated AS (
    SELECT cluster_id, broker_id, "user", client_id, 'client' AS source, window_end AS at, observed_rate AS rate,
           throttled
    FROM quota_usage
    WHERE quota_type = ':quota_type' AND source = 'client' AND window_seconds = 10 AND observed_rate IS NOT NULL
        AND landed_date :days AND window_end :between
), recorded AS (
    FROM sampled UNION ALL
    FROM estimated WHERE (cluster_id, broker_id, "user", client_id) NOT IN (
        SELECT (cluster_id, broker_id, "user", client_id) FROM sampled
    )
)
