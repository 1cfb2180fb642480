-- What is wrong with which client, what is the evidence, and what helps? One row per client id, hour and finding.
-- evidence ends with the hour that it is about.
-- docs/findings.md explains the rules and thresholds. severity: error (data or telemetry is lost, or soon will be),
-- warning (costs time or money), info.
WITH hours AS (
  SELECT
    h.*,
    records_sent / nullif(sending_s, 0) AS records_per_s,
    coalesce(
      nullif(regexp_extract(software_version, 'rdkafka-([0-9]+[.][0-9]+[.][0-9]+)', 1), ''),
      CASE WHEN software_name LIKE '%rdkafka%' THEN nullif(regexp_extract(software_version, '([0-9]+[.][0-9]+[.][0-9]+)', 1), '') END
    ) AS rdkafka
  FROM client_hours AS h
),

judged AS (
  SELECT
    h.*,
    least(greatest(ceil(10000 / nullif(records_per_s, 0)), 5), 100) AS linger_ms,
    CAST(TRY_CAST(split_part(rdkafka, '.', 1) AS INT) AS BIGINT) * 1000000 + CAST(TRY_CAST(split_part(rdkafka, '.', 2) AS INT) AS BIGINT) * 1000
    + CAST(TRY_CAST(split_part(rdkafka, '.', 3) AS INT) AS BIGINT) AS rdkafka_number
  FROM hours AS h
),

detected AS (
  SELECT
    j.cluster_id,
    j.client_id,
    j.window_start,
    array(
      CASE WHEN records_failed > 0 THEN struct(
        'failed_records' AS finding, 'error' AS severity,
        concat(CAST(TRY_CAST(records_failed AS BIGINT) AS STRING), ' records could not be sent (', CAST(TRY_CAST(records_sent AS BIGINT) AS STRING),
          ' were)') AS evidence,
        'The callback or future of send() has the cause; an application that ignores it loses these records. Raise delivery.timeout.ms where the cause passes by itself.' AS advice
      ) END,
      CASE WHEN records_retried > 0 AND coalesce(records_failed, 0) = 0 THEN struct(
        'silent_retries' AS finding, CASE WHEN records_retried >= 0.01 * records_sent THEN 'warning' ELSE 'info' END AS severity,
        concat(CAST(TRY_CAST(records_retried AS BIGINT) AS STRING), ' sends were retried for ', CAST(TRY_CAST(records_sent AS BIGINT) AS STRING),
          ' records; none failed, so the application saw nothing') AS evidence,
        'Look for leader changes, timeouts or throttling on the brokers at that time. Keep enable.idempotence=true: retries then neither double nor reorder records.' AS advice
      ) END,
      CASE WHEN records_per_request < 2 AND records_per_s >= 10 THEN struct(
        'one_record_per_request' AS finding, 'warning' AS severity,
        concat(CAST(round(records_per_request, 1) AS STRING), ' records per request at ', CAST(round(records_per_s, 1) AS STRING),
          ' records/s per instance') AS evidence,
        concat('Each request costs network, broker CPU and a place in the log: try linger.ms=', CAST(TRY_CAST(linger_ms AS INT) AS STRING), ' and batch.size=',
          CAST(TRY_CAST(greatest(16384, pow(2, ceil(log2(greatest(1, records_per_s * linger_ms / 1000 * coalesce(record_bytes, 1)))))) AS BIGINT) AS STRING),
          ', about ', CAST(TRY_CAST(greatest(1, round(records_per_s * linger_ms / 1000)) AS INT) AS STRING), ' records per request.') AS advice
      ) END,
      CASE WHEN batch_bytes >= 0.8 * batch_bytes_max AND batch_bytes_max >= 4096 AND records_per_s >= 100 THEN struct(
        'full_batches' AS finding, 'info' AS severity,
        concat('batches are ', CAST(TRY_CAST(batch_bytes AS BIGINT) AS STRING), ' bytes on average, ', CAST(TRY_CAST(batch_bytes_max AS BIGINT) AS STRING),
          ' at most: they fill before linger.ms ends') AS evidence,
        concat('A larger batch.size means fewer requests at this rate: try batch.size=',
          CAST(TRY_CAST(pow(2, ceil(log2(2 * batch_bytes_max))) AS BIGINT) AS STRING), '.') AS advice
      ) END,
      CASE WHEN compressed_to >= 0.99 AND bytes_sent >= 1000000 THEN struct(
        'uncompressed_records' AS finding, 'info' AS severity,
        concat(CAST(round(bytes_sent / 1000000, 1) AS STRING), ' MB were sent at ', CAST(round(100 * compressed_to, 1) AS STRING), ' % of their size') AS evidence,
        'Set compression.type=zstd or lz4: less network, disk and quota. Leave it where the payloads are compressed already.' AS advice
      ) END,
      CASE WHEN buffer_exhausted > 0 OR buffer_wait_ratio > 0.01 THEN struct(
        'buffer_full' AS finding, CASE WHEN buffer_exhausted > 0 THEN 'error' ELSE 'warning' END AS severity,
        concat('send() waited for buffer memory ', CAST(round(100 * coalesce(buffer_wait_ratio, 0), 1) AS STRING), ' % of the time; ',
          CAST(TRY_CAST(coalesce(buffer_exhausted, 0) AS BIGINT) AS STRING), ' records were given up') AS evidence,
        'The producer makes records faster than they leave: look at request latency and throttling first, then batch.size, compression.type and buffer.memory.' AS advice
      ) END,
      CASE WHEN connections_opened >= 10 * instances AND connected_s > 0 AND connections_opened * 60 > connected_s THEN struct(
        'connection_churn' AS finding, 'warning' AS severity,
        concat(CAST(TRY_CAST(connections_opened AS BIGINT) AS STRING), ' connections opened by ', CAST(instances AS STRING), ' instances, ',
          CAST(round(60 * connections_opened / connected_s, 1) AS STRING), ' a minute and instance') AS evidence,
        'Look for brokers or load balancers that close connections (connections.max.idle.ms, idle timeouts of proxies), failing authentication, or unreachable advertised listeners.' AS advice
      ) END,
      CASE WHEN failed_authentications > 0 THEN struct(
        'failed_authentication' AS finding, 'error' AS severity,
        concat(CAST(TRY_CAST(failed_authentications AS BIGINT) AS STRING), ' authentications failed') AS evidence,
        'Check when the credentials expire and that every broker knows them: some connections of this client do authenticate, or it could not tell.' AS advice
      ) END,
      CASE WHEN rebalances >= 3 * instances THEN struct(
        'unstable_group' AS finding, 'warning' AS severity,
        concat(CAST(TRY_CAST(rebalances AS BIGINT) AS STRING), ' rebalances of ', CAST(instances AS STRING), ' instances') AS evidence,
        'Set group.instance.id (static membership) against restarts, raise session.timeout.ms against pauses, max.poll.interval.ms or lower max.poll.records against slow processing; group.protocol=consumer or the cooperative assignor make rebalances cheap.' AS advice
      ) END,
      CASE WHEN between_polls_ms >= 150000 THEN struct(
        'slow_processing' AS finding, CASE WHEN between_polls_ms >= 300000 THEN 'error' ELSE 'warning' END AS severity,
        concat(CAST(TRY_CAST(between_polls_ms / 1000 AS BIGINT) AS STRING), ' s between two polls') AS evidence,
        'At max.poll.interval.ms (300 s unless set) the group takes the partitions away: lower max.poll.records, hand work to other threads, or raise the limit.' AS advice
      ) END,
      CASE WHEN poll_idle_ratio < 0.1 AND lag_records >= 1000 THEN struct(
        'processing_bound' AS finding, 'warning' AS severity,
        concat('waits ', CAST(round(100 * poll_idle_ratio, 1) AS STRING), ' % of the time for records, lag up to ', CAST(TRY_CAST(lag_records AS BIGINT) AS STRING),
          ' records') AS evidence,
        'Kafka delivers faster than the application processes: more instances (up to the number of partitions), or faster processing; fetch settings do not help.' AS advice
      ) END,
      CASE WHEN throttle_ms > 0 THEN struct(
        'throttled' AS finding, 'warning' AS severity,
        concat('a broker held it back for ', CAST(TRY_CAST(throttle_ms AS BIGINT) AS STRING), ' ms at most') AS evidence,
        'It exceeds its quota: compress and batch more, spread the load over time, or ask for a higher quota (views quota_headroom, throttled_clients).' AS advice
      ) END,
      CASE WHEN metadata_age_s > 360 THEN struct(
        'stale_metadata' AS finding, 'error' AS severity,
        concat('the metadata of the producer is ', CAST(TRY_CAST(metadata_age_s AS BIGINT) AS STRING), ' s old') AS evidence,
        'It refreshes every metadata.max.age.ms (300 s unless set); older means that it reaches no broker that can answer. Check bootstrap.servers and advertised listeners; metadata.recovery.strategy=rebootstrap (KIP-899, KIP-1102) heals changed addresses.' AS advice
      ) END,
      CASE WHEN rdkafka_number >= 2005000 AND rdkafka_number < 2010001 THEN struct(
        'buggy_client_version' AS finding, 'warning' AS severity,
        concat('librdkafka ', rdkafka) AS evidence,
        'Versions 2.5.0 to 2.10.0 repeat metrics when prefixes overlap (librdkafka #5104), miss some (#5105) and reconnect in a loop when no metric matches (#5106): update to 2.10.1 or newer.' AS advice
      ) END,
      CASE WHEN rdkafka_number >= 2011000 AND rdkafka_number < 2012000 THEN struct(
        'buggy_client_version' AS finding, 'warning' AS severity,
        concat('librdkafka ', rdkafka) AS evidence,
        'Version 2.11 rebootstraps without need (librdkafka #5178): update to 2.12.0 or newer.' AS advice
      ) END,
      CASE WHEN software_name = 'apache-kafka-java' AND (software_version LIKE '3.7.%' OR software_version LIKE '3.8.%') THEN struct(
        'buggy_client_version' AS finding, 'info' AS severity,
        concat('Java client ', software_version) AS evidence,
        'Java 3.7 and 3.8 may end telemetry by a race on close and send it uncompressed: update to 3.9 or newer.' AS advice
      ) END,
      CASE WHEN instances >= 10 AND span_s >= 6 * push_interval_s AND 4.0 * pushes / instances < span_s / push_interval_s THEN struct(
        'short_lived_clients' AS finding, 'warning' AS severity,
        concat(CAST(instances AS STRING), ' client instances with ', CAST(round(CAST(pushes AS DOUBLE) / instances, 1) AS STRING), ' pushes each in ',
          CAST(TRY_CAST(span_s AS BIGINT) AS STRING), ' s, at an interval of ', CAST(round(push_interval_s, 1) AS STRING), ' s') AS evidence,
        'A new client per task or message costs connections, authentication and metadata each time: make one and keep it. A process that crashes and restarts looks the same.' AS advice
      ) END,
      CASE WHEN lost_intervals > 0 THEN struct(
        'lost_telemetry' AS finding, 'info' AS severity,
        concat(CAST(lost_intervals AS STRING), ' intervals were collected by the client but never landed') AS evidence,
        'Counters of that time are lost for ever: clients forget an interval whose push failed. Look whether the brokers were up then, and what the receivers dropped (table receiver_health).' AS advice
      ) END,
      CASE WHEN quarantined > 0 THEN struct(
        'unreadable_telemetry' AS finding, 'error' AS severity,
        concat(CAST(quarantined AS STRING), ' of ', CAST(pushes AS STRING), ' pushes could not be read') AS evidence,
        'Table quarantine has reason, detail and payload of each.' AS advice
      ) END,
      CASE WHEN set_aside > 0 THEN struct(
        'failed_processing' AS finding, 'error' AS severity,
        concat(CAST(set_aside AS STRING), ' of ', CAST(pushes AS STRING), ' pushes made their processing fail and were set aside') AS evidence,
        'A bug of this pipeline, or an attack on it: report detail and payload of table quarantine (reason PROCESSING_FAILED) to its maintainers. After an upgrade that mends it, telemetry-lake replay --from quarantine judges these pushes anew.' AS advice
      ) END,
      CASE WHEN push_bytes_max >= 838861 THEN struct(
        'large_telemetry' AS finding, 'warning' AS severity,
        concat('pushes of up to ', CAST(push_bytes_max AS STRING), ' bytes, decompressed') AS evidence,
        'Brokers from 4.3.1 refuse what exceeds telemetry.max.bytes (1048576 unless set) when decompressed, and Java clients then stop telemetry for good (KAFKA-21076): raise it, or ask for fewer metrics.' AS advice
      ) END
    ) AS all_findings
  FROM judged AS j
)

SELECT
  cluster_id, client_id, window_start, finding, severity,
  concat(evidence, ', in the hour from ', date_format(window_start, 'yyyy-MM-dd HH:mm'), ' UTC') AS evidence, advice
FROM (
  SELECT t.cluster_id, t.client_id, t.window_start, f.finding, f.severity, f.evidence, f.advice
  FROM detected AS t
  LATERAL VIEW explode(t.all_findings) e AS f
  WHERE f.finding IS NOT NULL

  UNION ALL

  SELECT
    cluster_id,
    CAST(NULL AS STRING) AS client_id,
    window_start,
    'greedy_principal' AS finding,
    'warning' AS severity,
    concat(principal, ' landed ', CAST(landed_bytes AS STRING), ' of ', CAST(all_bytes AS STRING), ' bytes by ', CAST(instances AS STRING),
      ' client instances; ', CAST(principals AS STRING), ' principals pushed') AS evidence,
    'Client instance ids are free, so look at the principal: what it pushes (view quarantine_offenders, table pushes), and bound it by --principal-mb-per-hour and --principal-series-per-hour.' AS advice
  FROM (
    SELECT
      cluster_id,
      principal,
      date_trunc('hour', landed_at) AS window_start,
      sum(payload_bytes) AS landed_bytes,
      count(DISTINCT client_instance_id) AS instances,
      sum(sum(payload_bytes)) OVER (PARTITION BY cluster_id, date_trunc('hour', landed_at)) AS all_bytes,
      count(*) OVER (PARTITION BY cluster_id, date_trunc('hour', landed_at)) AS principals
    FROM pushes
    WHERE principal IS NOT NULL
    GROUP BY cluster_id, principal, date_trunc('hour', landed_at)
  ) AS p
  WHERE principals >= 20 AND landed_bytes * principals > 10 * all_bytes
) AS found
