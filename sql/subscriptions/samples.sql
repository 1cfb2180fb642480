-- Which push of each of these instances has the most points?
-- In DuckDB's dialect.
SELECT o.client_instance_id, arg_max(p.payload, o.points) AS payload,
    arg_max(coalesce(p.compression_type, 'none'), o.points) AS codec
FROM push_outcomes AS o JOIN pushes AS p USING (:keys)
WHERE o.landed_date :days AND p.landed_date :days AND o.landed_at :between AND o.points > 0
    AND p.payload IS NOT NULL AND o.cluster_id = :cluster AND o.client_instance_id IN (:instances)
GROUP BY o.client_instance_id
