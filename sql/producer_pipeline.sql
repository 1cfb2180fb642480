-- Where do a producer's records wait, and how are they sent? One row per producer instance and minute of its clock.
-- compression_ratio: compressed by uncompressed size, 0 to 1. slowest_node_id: the node of node_request_latency_max_ms.
-- NULL: not pushed; librdkafka pushes only queue time, request latency, throttle time, connections and node latency.
WITH minutes AS (
  SELECT
    p.cluster_id,
    p.client_instance_id,
    p.minute,
    count(DISTINCT p.landed_at) AS pushes,
    avg(CASE WHEN p.name = 'producer.record.queue.time.avg' THEN p.value END) AS queue_time_avg_ms,
    max(CASE WHEN p.name = 'producer.record.queue.time.max' THEN p.value END) AS queue_time_max_ms,
    avg(CASE WHEN p.name = 'producer.request.latency.avg' THEN p.value END) AS request_latency_avg_ms,
    max(CASE WHEN p.name = 'producer.request.latency.max' THEN p.value END) AS request_latency_max_ms,
    avg(CASE WHEN p.name = 'producer.batch.size.avg' THEN p.value END) AS batch_size_avg_bytes,
    max(CASE WHEN p.name = 'producer.batch.size.max' THEN p.value END) AS batch_size_max_bytes,
    avg(CASE WHEN p.name = 'producer.records.per.request.avg' THEN p.value END) AS records_per_request_avg,
    max(CASE WHEN p.name = 'producer.requests.in.flight' THEN p.value END) AS requests_in_flight_max,
    sum(CASE WHEN p.name = 'producer.record.send.total' THEN p.delta END) AS records_sent,
    sum(CASE WHEN p.name = 'producer.record.retry.total' THEN p.delta END) AS record_retries,
    sum(CASE WHEN p.name = 'producer.record.error.total' THEN p.delta END) AS record_errors,
    avg(CASE WHEN p.name = 'producer.compression.rate.avg' THEN p.value END) AS compression_ratio,
    sum(CASE WHEN p.name = 'producer.bufferpool.wait.time.ns.total' THEN p.delta END) / 1e6 AS buffer_wait_ms,
    sum(CASE WHEN p.name = 'producer.buffer.exhausted.total' THEN p.delta END) AS buffer_exhausted_records,
    min(CASE WHEN p.name = 'producer.buffer.available.bytes' THEN p.value END) AS buffer_available_min_bytes,
    max(CASE WHEN p.name = 'producer.produce.throttle.time.max' THEN p.value END) AS throttle_time_max_ms,
    max(CASE WHEN p.name = 'producer.metadata.age' THEN p.value END) AS metadata_age_max_s,
    sum(CASE WHEN p.name = 'producer.connection.creation.total' THEN p.delta END) AS connections_created,
    max(CASE WHEN p.name = 'producer.node.request.latency.max' THEN p.value END) AS node_request_latency_max_ms,
    max_by(
      element_at(p.attributes, 'node_id'),
      CASE WHEN p.name = 'producer.node.request.latency.max' THEN p.value END
    ) AS slowest_node_id
  FROM counted_points AS p
  WHERE p.metric LIKE 'org.apache.kafka.producer.%'
  GROUP BY p.cluster_id, p.client_instance_id, p.minute
)

SELECT
  m.cluster_id,
  m.minute,
  m.client_instance_id,
  c.client_id,
  c.application,
  c.owner,
  c.client_software_name,
  c.client_software_version,
  c.state,
  m.pushes,
  m.queue_time_avg_ms,
  m.queue_time_max_ms,
  m.request_latency_avg_ms,
  m.request_latency_max_ms,
  m.batch_size_avg_bytes,
  m.batch_size_max_bytes,
  m.records_per_request_avg,
  m.requests_in_flight_max,
  m.records_sent,
  m.record_retries,
  m.record_errors,
  m.compression_ratio,
  m.buffer_wait_ms,
  m.buffer_exhausted_records,
  m.buffer_available_min_bytes,
  m.throttle_time_max_ms,
  m.metadata_age_max_s,
  m.connections_created,
  m.node_request_latency_max_ms,
  m.slowest_node_id
FROM minutes AS m
LEFT JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(m.cluster_id, '') AND c.client_instance_id = m.client_instance_id
