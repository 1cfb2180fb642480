-- Which pushes of this client instance landed, and with which outcomes?
SELECT p.landed_at, o.outcome, o.points, o.temporality, p.terminating, p.compression_type, p.payload_bytes, p.broker_id,
  o.lost_start, o.lost_end
FROM pushes AS p
LEFT JOIN push_outcomes AS o
  ON o.source = p.source AND o.topic = p.topic AND o.partition = p.partition AND o.offset = p.offset
WHERE p.client_instance_id = :instance AND p.landed_at >= :start AND p.landed_at < :stop
ORDER BY p.landed_at DESC
LIMIT :top
