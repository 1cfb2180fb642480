-- What does each subscription cost, per client and software?
-- A push's bytes are divided among its points; overlapping subscriptions each count the bytes of their shared points.
-- large_uncompressed: pushes of more than 1000 bytes without compression, contrary to KIP-714's advice.
WITH served AS (
  SELECT s.cluster_id, s.subscription, s.source, s.topic, s.partition, s.offset, s.landed_at, count(*) AS points
  FROM subscription_metrics AS s
  GROUP BY s.cluster_id, s.subscription, s.source, s.topic, s.partition, s.offset, s.landed_at
)

SELECT
  s.cluster_id,
  s.subscription,
  p.client_id,
  max(e.application) AS application,
  max(e.owner) AS owner,
  p.client_software_name,
  p.client_software_version,
  count(*) AS pushes,
  sum(s.points) AS points,
  sum(p.payload_bytes * s.points / nullif(o.points, 0)) AS payload_bytes,
  sum(o.decompressed_bytes * s.points / nullif(o.points, 0)) AS decompressed_bytes,
  sum(o.decompressed_bytes) / nullif(sum(p.payload_bytes), 0) AS compression_ratio,
  count_if(coalesce(p.compression_type, 'none') IN ('none', '0') AND p.payload_bytes > 1000) AS large_uncompressed
FROM served AS s
JOIN pushes AS p
  ON p.source = s.source AND p.topic = s.topic AND p.partition = s.partition AND p.offset = s.offset
    AND p.landed_at = s.landed_at
JOIN push_outcomes AS o
  ON o.source = s.source AND o.topic = s.topic AND o.partition = s.partition AND o.offset = s.offset
    AND o.landed_at = s.landed_at
LEFT JOIN entity_owners AS e
  ON coalesce(e.cluster_id, '') = coalesce(p.cluster_id, '') AND e.user = '' AND e.client_id = p.client_id
GROUP BY s.cluster_id, s.subscription, p.client_id, p.client_software_name, p.client_software_version
