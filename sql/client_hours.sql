-- What did each client id do in each hour? Counts, means and maxima of the hour, from which view findings is computed.
-- sending_s and connected_s: the time that the counts cover, over all instances of the client id.
WITH measured AS (
  SELECT
    cluster_id,
    client_id,
    window_start,
    sum(CASE WHEN metric = 'org.apache.kafka.producer.record.send.total' THEN increase END) AS records_sent,
    sum(CASE WHEN metric = 'org.apache.kafka.producer.record.retry.total' THEN increase END) AS records_retried,
    sum(CASE WHEN metric = 'org.apache.kafka.producer.record.error.total' THEN increase END) AS records_failed,
    sum(CASE WHEN metric = 'org.apache.kafka.producer.topic.byte.total' THEN increase END) AS bytes_sent,
    sum(CASE WHEN metric = 'org.apache.kafka.producer.buffer.exhausted.total' THEN increase END) AS buffer_exhausted,
    sum(CASE WHEN metric IN (
      'org.apache.kafka.producer.connection.creation.total',
      'org.apache.kafka.consumer.connection.creation.total',
      'org.apache.kafka.admin.client.connection.creation.total'
    ) THEN increase END) AS connections_opened,
    sum(CASE WHEN metric IN (
      'org.apache.kafka.producer.failed.authentication.total',
      'org.apache.kafka.consumer.failed.authentication.total',
      'org.apache.kafka.admin.client.failed.authentication.total'
    ) THEN increase END) AS failed_authentications,
    sum(CASE WHEN metric = 'org.apache.kafka.consumer.coordinator.rebalance.total' THEN increase END) AS rebalances,
    sum(CASE WHEN metric = 'org.apache.kafka.producer.record.send.total' THEN covered_s END) AS sending_s,
    sum(CASE WHEN metric IN (
      'org.apache.kafka.producer.connection.creation.total',
      'org.apache.kafka.consumer.connection.creation.total',
      'org.apache.kafka.admin.client.connection.creation.total'
    ) THEN covered_s END) AS connected_s,
    sum(CASE WHEN metric = 'org.apache.kafka.producer.records.per.request.avg' THEN value_sum END)
    / nullif(sum(CASE WHEN metric = 'org.apache.kafka.producer.records.per.request.avg' THEN value_count END), 0) AS records_per_request,
    sum(CASE WHEN metric = 'org.apache.kafka.producer.batch.size.avg' THEN value_sum END)
    / nullif(sum(CASE WHEN metric = 'org.apache.kafka.producer.batch.size.avg' THEN value_count END), 0) AS batch_bytes,
    sum(CASE WHEN metric = 'org.apache.kafka.producer.record.size.avg' THEN value_sum END)
    / nullif(sum(CASE WHEN metric = 'org.apache.kafka.producer.record.size.avg' THEN value_count END), 0) AS record_bytes,
    sum(CASE WHEN metric = 'org.apache.kafka.producer.compression.rate.avg' THEN value_sum END)
    / nullif(sum(CASE WHEN metric = 'org.apache.kafka.producer.compression.rate.avg' THEN value_count END), 0) AS compressed_to,
    sum(CASE WHEN metric = 'org.apache.kafka.consumer.poll.idle.ratio.avg' THEN value_sum END)
    / nullif(sum(CASE WHEN metric = 'org.apache.kafka.consumer.poll.idle.ratio.avg' THEN value_count END), 0) AS poll_idle_ratio,
    sum(CASE WHEN metric = 'org.apache.kafka.producer.bufferpool.wait.ratio' THEN value_sum END)
    / nullif(sum(CASE WHEN metric = 'org.apache.kafka.producer.bufferpool.wait.ratio' THEN value_count END), 0) AS buffer_wait_ratio,
    max(CASE WHEN metric = 'org.apache.kafka.producer.batch.size.max' THEN value_max END) AS batch_bytes_max,
    max(CASE WHEN metric = 'org.apache.kafka.producer.metadata.age' THEN value_max END) AS metadata_age_s,
    max(CASE WHEN metric = 'org.apache.kafka.consumer.fetch.manager.records.lag.max' THEN value_max END) AS lag_records,
    max(CASE WHEN metric = 'org.apache.kafka.consumer.time.between.poll.max' THEN value_max END) AS between_polls_ms,
    max(CASE WHEN metric IN (
      'org.apache.kafka.producer.produce.throttle.time.max',
      'org.apache.kafka.consumer.fetch.manager.fetch.throttle.time.max'
    ) THEN value_max END) AS throttle_ms
  FROM metric_rollups_1h
  WHERE metric IN (
    'org.apache.kafka.admin.client.connection.creation.total',
    'org.apache.kafka.admin.client.failed.authentication.total',
    'org.apache.kafka.consumer.connection.creation.total',
    'org.apache.kafka.consumer.coordinator.rebalance.total',
    'org.apache.kafka.consumer.failed.authentication.total',
    'org.apache.kafka.consumer.fetch.manager.fetch.throttle.time.max',
    'org.apache.kafka.consumer.fetch.manager.records.lag.max',
    'org.apache.kafka.consumer.poll.idle.ratio.avg',
    'org.apache.kafka.consumer.time.between.poll.max',
    'org.apache.kafka.producer.batch.size.avg',
    'org.apache.kafka.producer.batch.size.max',
    'org.apache.kafka.producer.buffer.exhausted.total',
    'org.apache.kafka.producer.bufferpool.wait.ratio',
    'org.apache.kafka.producer.compression.rate.avg',
    'org.apache.kafka.producer.connection.creation.total',
    'org.apache.kafka.producer.failed.authentication.total',
    'org.apache.kafka.producer.metadata.age',
    'org.apache.kafka.producer.produce.throttle.time.max',
    'org.apache.kafka.producer.record.error.total',
    'org.apache.kafka.producer.record.retry.total',
    'org.apache.kafka.producer.record.send.total',
    'org.apache.kafka.producer.record.size.avg',
    'org.apache.kafka.producer.records.per.request.avg',
    'org.apache.kafka.producer.topic.byte.total'
  )
  GROUP BY cluster_id, client_id, window_start
),

pushed AS (
  SELECT
    cluster_id,
    client_id,
    date_trunc('HOUR', landed_at) AS window_start,
    count(DISTINCT client_instance_id) AS instances,
    count(*) AS pushes,
    (unix_micros(max(landed_at)) - unix_micros(min(landed_at))) / 1000000.0 AS span_s,
    sum(CASE WHEN outcome = 'quarantined' THEN 1 ELSE 0 END) AS quarantined,
    count(lost_start) AS lost_intervals,
    max(decompressed_bytes) AS push_bytes_max
  FROM push_outcomes
  GROUP BY cluster_id, client_id, date_trunc('HOUR', landed_at)
),

failed AS (
  SELECT cluster_id, client_id, date_trunc('HOUR', landed_at) AS window_start, count(*) AS set_aside
  FROM quarantine
  WHERE scope = 'push' AND reason = 'PROCESSING_FAILED'
  GROUP BY cluster_id, client_id, date_trunc('HOUR', landed_at)
),

software AS (
  SELECT
    cluster_id,
    client_id,
    date_trunc('HOUR', landed_at) AS window_start,
    max_by(client_software_name, landed_at) AS software_name,
    max_by(client_software_version, landed_at) AS software_version,
    max(push_interval_ms) / 1000.0 AS push_interval_s
  FROM pushes
  GROUP BY cluster_id, client_id, date_trunc('HOUR', landed_at)
)

SELECT
  p.cluster_id,
  p.client_id,
  p.window_start,
  p.instances,
  p.pushes,
  p.span_s,
  s.push_interval_s,
  p.quarantined - coalesce(f.set_aside, 0) AS quarantined,
  coalesce(f.set_aside, 0) AS set_aside,
  p.lost_intervals,
  p.push_bytes_max,
  s.software_name,
  s.software_version,
  m.records_sent,
  m.records_retried,
  m.records_failed,
  m.bytes_sent,
  m.buffer_exhausted,
  m.connections_opened,
  m.failed_authentications,
  m.rebalances,
  m.sending_s,
  m.connected_s,
  m.records_per_request,
  m.batch_bytes,
  m.record_bytes,
  m.compressed_to,
  m.poll_idle_ratio,
  m.buffer_wait_ratio,
  m.batch_bytes_max,
  m.metadata_age_s,
  m.lag_records,
  m.between_polls_ms,
  m.throttle_ms
FROM pushed AS p
LEFT JOIN software AS s
  ON s.cluster_id <=> p.cluster_id AND s.client_id <=> p.client_id AND s.window_start = p.window_start
LEFT JOIN failed AS f
  ON f.cluster_id <=> p.cluster_id AND f.client_id <=> p.client_id AND f.window_start = p.window_start
LEFT JOIN measured AS m
  ON m.cluster_id <=> p.cluster_id AND m.client_id <=> p.client_id AND m.window_start = p.window_start
