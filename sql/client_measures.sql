-- How much does each client do, in measures that are the same for every library? One row per instance and minute of its clock.
-- kind: what the instance pushes metrics of: producer, consumer, share_consumer, admin. library: as in view clients. A
-- measure is NULL if it was not pushed in the minute. not_in_library: those of them that this library has no metric for, so
-- they stay NULL; not_pushed: the others (no subscription asks for them, or there was nothing to measure). Counts are increases of whole clients, never of topics or nodes beside them; bytes_sent is the sum over topics
-- of record batches as sent, bytes_out all bytes of all requests. Times are means of the pushed means, and maxima.
-- request_latency: of requests of any kind, over the nodes that answered one. throttle_time: delay by a quota.
WITH labelled AS (
  SELECT
    *,
    CASE
      WHEN name LIKE 'producer.%' THEN 'producer'
      WHEN name LIKE 'consumer.share.%' THEN 'share_consumer'
      WHEN name LIKE 'consumer.%' THEN 'consumer'
      WHEN name LIKE 'admin.client.%' THEN 'admin'
    END AS kind,
    substring(name, instr(name, '.') + 1) AS of_client
  FROM counted_points
  WHERE metric LIKE 'org.apache.kafka.producer.%' OR metric LIKE 'org.apache.kafka.consumer.%'
    OR metric LIKE 'org.apache.kafka.admin.client.%'
),

minutes AS (
  SELECT
    cluster_id,
    client_instance_id,
    minute,
    -- A consumer of a share group pushes some metrics of consumers too, and a Streams consumer none of producers.
    CASE max(CASE kind WHEN 'share_consumer' THEN 4 WHEN 'producer' THEN 3 WHEN 'consumer' THEN 2 ELSE 1 END)
      WHEN 4 THEN 'share_consumer' WHEN 3 THEN 'producer' WHEN 2 THEN 'consumer' ELSE 'admin' END AS kind,
    count(DISTINCT landed_at) AS pushes,
    sum(CASE WHEN name = 'producer.record.send.total' THEN delta END) AS records_sent,
    sum(CASE WHEN name = 'producer.topic.byte.total' THEN delta END) AS bytes_sent,
    sum(CASE WHEN name = 'producer.record.retry.total' THEN delta END) AS record_retries,
    sum(CASE WHEN name = 'producer.record.error.total' THEN delta END) AS record_errors,
    avg(CASE WHEN name = 'producer.record.queue.time.avg' THEN value END) AS queue_time_avg_ms,
    max(CASE WHEN name = 'producer.record.queue.time.max' THEN value END) AS queue_time_max_ms,
    avg(CASE WHEN name = 'producer.compression.rate.avg' THEN value END) AS compression_ratio,
    sum(
      CASE
        WHEN name IN ('consumer.fetch.manager.records.consumed.total', 'consumer.share.fetch.manager.records.consumed.total')
          AND of_topic IS NULL THEN delta
      END
    ) AS records_consumed,
    sum(
      CASE
        WHEN name IN ('consumer.fetch.manager.bytes.consumed.total', 'consumer.share.fetch.manager.bytes.consumed.total')
          AND of_topic IS NULL THEN delta
      END
    ) AS bytes_consumed,
    max(CASE WHEN name = 'consumer.fetch.manager.records.lag.max' AND of_topic IS NULL THEN value END) AS records_lag_max,
    avg(
      CASE
        WHEN name IN ('consumer.fetch.manager.fetch.latency.avg', 'consumer.share.fetch.manager.fetch.latency.avg')
          THEN value
      END
    ) AS fetch_latency_avg_ms,
    avg(CASE WHEN name IN ('consumer.poll.idle.ratio.avg', 'consumer.share.poll.idle.ratio.avg') THEN value END)
      AS poll_idle_ratio,
    max(CASE WHEN name = 'consumer.coordinator.assigned.partitions' THEN value END) AS assigned_partitions,
    sum(CASE WHEN name = 'consumer.coordinator.rebalance.latency.total' THEN delta END) AS rebalance_ms,
    avg(CASE WHEN name = 'consumer.coordinator.commit.latency.avg' THEN value END) AS commit_latency_avg_ms,
    avg(CASE WHEN name LIKE '%.node.request.latency.avg' AND value > 0 THEN value END) AS request_latency_avg_ms,
    max(CASE WHEN name LIKE '%.node.request.latency.max' AND value > 0 THEN value END) AS request_latency_max_ms,
    max(
      CASE
        WHEN name IN (
          'producer.produce.throttle.time.max', 'consumer.fetch.manager.fetch.throttle.time.max',
          'consumer.share.fetch.manager.fetch.throttle.time.max'
        ) THEN value
      END
    ) AS throttle_time_max_ms,
    sum(CASE WHEN of_client IN ('connection.creation.total', 'client.connection.creation.total') THEN delta END)
      AS connections_created,
    sum(CASE WHEN of_client IN ('request.total', 'client.request.total') THEN delta END) AS requests,
    sum(CASE WHEN of_client IN ('outgoing.byte.total', 'client.outgoing.byte.total') THEN delta END) AS bytes_out,
    sum(CASE WHEN of_client IN ('incoming.byte.total', 'client.incoming.byte.total') THEN delta END) AS bytes_in
  FROM labelled
  GROUP BY cluster_id, client_instance_id, minute
),

named AS (
  SELECT
    m.*,
    c.client_id,
    c.application,
    c.owner,
    c.principal,
    c.client_software_name,
    c.client_software_version,
    element_at(c.labels, 'group_id') AS group_id,
    coalesce(c.library, 'unknown') AS library,
    -- The measures of this kind of client that are NULL.
    filter(
      array(
        CASE WHEN m.kind = 'producer' AND m.records_sent IS NULL THEN 'records_sent' END,
        CASE WHEN m.kind = 'producer' AND m.bytes_sent IS NULL THEN 'bytes_sent' END,
        CASE WHEN m.kind = 'producer' AND m.record_retries IS NULL THEN 'record_retries' END,
        CASE WHEN m.kind = 'producer' AND m.record_errors IS NULL THEN 'record_errors' END,
        CASE WHEN m.kind = 'producer' AND m.queue_time_avg_ms IS NULL THEN 'queue_time_avg_ms' END,
        CASE WHEN m.kind = 'producer' AND m.queue_time_max_ms IS NULL THEN 'queue_time_max_ms' END,
        CASE WHEN m.kind = 'producer' AND m.compression_ratio IS NULL THEN 'compression_ratio' END,
        CASE WHEN m.kind LIKE '%consumer' AND m.records_consumed IS NULL THEN 'records_consumed' END,
        CASE WHEN m.kind LIKE '%consumer' AND m.bytes_consumed IS NULL THEN 'bytes_consumed' END,
        CASE WHEN m.kind = 'consumer' AND m.records_lag_max IS NULL THEN 'records_lag_max' END,
        CASE WHEN m.kind LIKE '%consumer' AND m.fetch_latency_avg_ms IS NULL THEN 'fetch_latency_avg_ms' END,
        CASE WHEN m.kind LIKE '%consumer' AND m.poll_idle_ratio IS NULL THEN 'poll_idle_ratio' END,
        CASE WHEN m.kind = 'consumer' AND m.assigned_partitions IS NULL THEN 'assigned_partitions' END,
        CASE WHEN m.kind = 'consumer' AND m.rebalance_ms IS NULL THEN 'rebalance_ms' END,
        CASE WHEN m.kind = 'consumer' AND m.commit_latency_avg_ms IS NULL THEN 'commit_latency_avg_ms' END,
        CASE WHEN m.request_latency_avg_ms IS NULL THEN 'request_latency_avg_ms' END,
        CASE WHEN m.request_latency_max_ms IS NULL THEN 'request_latency_max_ms' END,
        CASE WHEN m.kind <> 'admin' AND m.throttle_time_max_ms IS NULL THEN 'throttle_time_max_ms' END,
        CASE WHEN m.connections_created IS NULL THEN 'connections_created' END,
        CASE WHEN m.requests IS NULL THEN 'requests' END,
        CASE WHEN m.bytes_out IS NULL THEN 'bytes_out' END,
        CASE WHEN m.bytes_in IS NULL THEN 'bytes_in' END
      ),
      measure -> measure IS NOT NULL
    ) AS missing
  FROM minutes AS m
  LEFT JOIN clients AS c
    ON coalesce(c.cluster_id, '') = coalesce(m.cluster_id, '') AND c.client_instance_id = m.client_instance_id
),

-- Measures that a library has no metric for, whatever a subscription asks for.
lacking AS (
  SELECT
    *,
    CASE
      WHEN library = 'librdkafka' AND kind = 'producer' THEN array(
        'records_sent', 'bytes_sent', 'record_retries', 'record_errors', 'compression_ratio', 'requests', 'bytes_out',
        'bytes_in'
      )
      WHEN library = 'librdkafka' AND kind = 'consumer' THEN array(
        'records_consumed', 'bytes_consumed', 'records_lag_max', 'throttle_time_max_ms', 'requests', 'bytes_out',
        'bytes_in'
      )
      WHEN library = 'librdkafka' THEN array('records_consumed', 'requests', 'bytes_out', 'bytes_in')
      WHEN library = 'franz-go' AND kind = 'producer' THEN array(
        'records_sent', 'bytes_sent', 'record_retries', 'record_errors', 'queue_time_avg_ms', 'queue_time_max_ms',
        'compression_ratio', 'requests', 'bytes_out', 'bytes_in'
      )
      WHEN library = 'franz-go' THEN array(
        'records_consumed', 'bytes_consumed', 'records_lag_max', 'fetch_latency_avg_ms', 'poll_idle_ratio',
        'assigned_partitions', 'rebalance_ms', 'throttle_time_max_ms', 'requests', 'bytes_out', 'bytes_in'
      )
      ELSE array('')
    END AS lacks
  FROM named
)

SELECT
  cluster_id,
  minute,
  client_instance_id,
  client_id,
  application,
  owner,
  principal,
  client_software_name,
  client_software_version,
  library,
  kind,
  group_id,
  pushes,
  records_sent,
  bytes_sent,
  record_retries,
  record_errors,
  queue_time_avg_ms,
  queue_time_max_ms,
  compression_ratio,
  records_consumed,
  bytes_consumed,
  records_lag_max,
  fetch_latency_avg_ms,
  poll_idle_ratio,
  assigned_partitions,
  rebalance_ms,
  commit_latency_avg_ms,
  request_latency_avg_ms,
  request_latency_max_ms,
  throttle_time_max_ms,
  connections_created,
  requests,
  bytes_out,
  bytes_in,
  array_join(filter(missing, measure -> array_contains(lacks, measure)), ', ') AS not_in_library,
  array_join(filter(missing, measure -> NOT array_contains(lacks, measure)), ', ') AS not_pushed
FROM lacking
