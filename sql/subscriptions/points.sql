-- How many points of which metric did each push?
-- In DuckDB's dialect.
SELECT d.client_instance_id, d.client_attributes_id, d.epoch, d.subscription_uncertain AS uncertain, m.metric,
    count(*)::DOUBLE AS points,
    sum(strlen(m.metric) + coalesce(strlen(array_to_string(map_keys(m.attributes), ''))
        + strlen(array_to_string(map_values(m.attributes), '')) + 8 * cardinality(m.attributes), 0)
    )::DOUBLE AS text
FROM dated AS d JOIN metric_points AS m USING (:keys)
WHERE m.landed_date :days
GROUP BY ALL
