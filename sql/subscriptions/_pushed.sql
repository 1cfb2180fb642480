-- What did each push tell of its client instance, by what is it matched, and as of which epoch of the subscriptions?
-- In DuckDB's dialect.
WITH epochs(starts, epoch) AS (VALUES :epochs), pushed AS (
    SELECT :keys, o.client_instance_id, o.client_attributes_id, t.subscription_at, t.subscription_uncertain,
        p.client_id, p.client_software_name, p.client_software_version, p.client_address, p.client_port,
        p.push_interval_ms, p.payload_bytes, o.decompressed_bytes
    FROM push_outcomes AS o JOIN pushes AS p USING (:keys) JOIN push_subscription_times AS t USING (:keys)
    WHERE o.landed_date :days AND p.landed_date :days AND t.landed_date :days AND o.landed_at :between
        AND o.cluster_id = :cluster AND o.client_instance_id IS NOT NULL AND o.outcome <> 'duplicate'
), dated AS (
    SELECT * FROM pushed ASOF JOIN epochs ON pushed.subscription_at >= epochs.starts
)
