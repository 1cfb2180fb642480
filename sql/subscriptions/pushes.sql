-- How much did each client instance push?
-- In DuckDB's dialect.
SELECT client_instance_id, client_attributes_id, epoch, subscription_uncertain AS uncertain,
    coalesce(push_interval_ms, 0) AS interval_ms, count(*) AS pushes,
    sum(coalesce(payload_bytes, 0))::DOUBLE AS payload, sum(coalesce(decompressed_bytes, 0))::DOUBLE AS size,
    max(landed_at) AS last, any_value(client_id) AS client_id,
    any_value(client_software_name) AS client_software_name,
    any_value(client_software_version) AS client_software_version, any_value(client_address) AS client_address,
    any_value(client_port) AS client_port, any_value(:library) AS library
FROM dated GROUP BY ALL ORDER BY ALL
