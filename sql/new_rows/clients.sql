-- Which client instances have points since a time? The partitions of the last days are read, the rest of a large lake isn't.
-- In DuckDB's dialect.
SELECT client_instance_id, any_value(p.client_id) AS client_id, any_value(client_software_name) AS software,
       any_value(client_software_version) AS version, count(*) AS pushes, sum(o.points) AS points
FROM pushes AS p JOIN push_outcomes AS o USING (source, topic, partition, "offset", client_instance_id)
WHERE p.landed_at >= TIMESTAMPTZ ':since' AND o.landed_at >= TIMESTAMPTZ ':since'
GROUP BY client_instance_id HAVING sum(o.points) > 0 ORDER BY min(p.landed_at), client_id
