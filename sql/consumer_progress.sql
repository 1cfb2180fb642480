-- Do consumers keep up? One row per consumer instance and minute of its clock.
-- records_lag_max, records_lead_min: over its partitions, in offsets, so at most so many records (markers of transactions
-- and what was aborted or compacted count); of a read_committed consumer up to the last stable offset.
-- poll_idle_ratio: share of time that the application spends in
-- poll, as its library computes it: 0 to 1, but 0.5 for a Java consumer that only waits. NULL: not pushed; librdkafka
-- pushes only fetch_latency, poll_idle_ratio and node_request_latency.
WITH minutes AS (
  SELECT
    p.cluster_id,
    p.client_instance_id,
    p.minute,
    count(DISTINCT p.landed_at) AS pushes,
    max(CASE WHEN p.name = 'consumer.fetch.manager.records.lag.max' THEN p.value END) AS records_lag_max,
    min(CASE WHEN p.name = 'consumer.fetch.manager.records.lead.min' THEN p.value END) AS records_lead_min,
    sum(
      CASE WHEN p.name = 'consumer.fetch.manager.records.consumed.total' AND p.of_topic IS NULL THEN p.delta END
    ) AS records_consumed,
    sum(
      CASE WHEN p.name = 'consumer.fetch.manager.bytes.consumed.total' AND p.of_topic IS NULL THEN p.delta END
    ) AS bytes_consumed,
    sum(CASE WHEN p.name = 'consumer.fetch.manager.fetch.total' THEN p.delta END) AS fetches,
    avg(CASE WHEN p.name = 'consumer.fetch.manager.fetch.latency.avg' THEN p.value END) AS fetch_latency_avg_ms,
    max(CASE WHEN p.name = 'consumer.fetch.manager.fetch.latency.max' THEN p.value END) AS fetch_latency_max_ms,
    avg(
      CASE WHEN p.name = 'consumer.fetch.manager.fetch.size.avg' AND p.of_topic IS NULL THEN p.value END
    ) AS fetch_size_avg_bytes,
    max(
      CASE WHEN p.name = 'consumer.fetch.manager.fetch.throttle.time.max' THEN p.value END
    ) AS fetch_throttle_time_max_ms,
    avg(CASE WHEN p.name = 'consumer.poll.idle.ratio.avg' THEN p.value END) AS poll_idle_ratio,
    avg(CASE WHEN p.name = 'consumer.time.between.poll.avg' THEN p.value END) AS time_between_poll_avg_ms,
    max(CASE WHEN p.name = 'consumer.time.between.poll.max' THEN p.value END) AS time_between_poll_max_ms,
    max(CASE WHEN p.name = 'consumer.last.poll.seconds.ago' THEN p.value END) AS last_poll_ago_max_s,
    max(CASE WHEN p.name = 'consumer.node.request.latency.max' THEN p.value END) AS node_request_latency_max_ms
  FROM counted_points AS p
  WHERE p.metric LIKE 'org.apache.kafka.consumer.%'
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
  element_at(c.labels, 'group_id') AS group_id,
  c.state,
  m.pushes,
  m.records_lag_max,
  m.records_lead_min,
  m.records_consumed,
  m.bytes_consumed,
  m.fetches,
  m.fetch_latency_avg_ms,
  m.fetch_latency_max_ms,
  m.fetch_size_avg_bytes,
  m.fetch_throttle_time_max_ms,
  m.poll_idle_ratio,
  m.time_between_poll_avg_ms,
  m.time_between_poll_max_ms,
  m.last_poll_ago_max_s,
  m.node_request_latency_max_ms
FROM minutes AS m
LEFT JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(m.cluster_id, '') AND c.client_instance_id = m.client_instance_id
