-- Which clients are active, terminated or silent, and what is the likely cause? One row per client instance.
-- Silent doesn't mean crashed: Java producers and admins close without a terminating push, and librdkafka omits one in
-- ten, more of them under JavaScript. likely_cause (L17) of a silent client is the first that applies: between_batches
-- (Spark's source, which pushes only while a batch reads), cluster_or_receiver (most clients fell silent within minutes and
-- few terminated), closed_with_siblings (another client of its Streams instance terminated at that time), nothing_to_restore
-- (a restore consumer of Streams, which pushes only while its thread's tasks lack state; its instance is active, or, if the
-- client id doesn't name it, a client of its address; unknown if the address is), process_gone (all
-- clients of its address are gone; an unknown address is none, and behind a proxy that passes requests on all have its),
-- closed_without_flag (a Java producer with nothing left to send, or an admin), killed_or_cut_off (a client that would have
-- sent a terminating push, such as a consumer, or a Java producer whose last push reported buffered records or requests in
-- flight), unknown. A client that returns after a back-off of 5 or 30 minutes has an event resumed. buffered_bytes,
-- requests_in_flight: last values of silent Java producers; NULL: none.
WITH known AS (
  SELECT
    *,
    nullif(regexp_extract(client_id, '^(.+-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})-.+$', 1), '')
      AS streams_instance,
    nullif(client_address, '') AS known_address,
    max(last_seen) OVER (PARTITION BY cluster_id) AS as_of
  FROM clients
),

counted AS (
  SELECT
    *,
    max(CASE WHEN streams_instance IS NOT NULL THEN terminated_at END)
      OVER (PARTITION BY cluster_id, coalesce(streams_instance, client_instance_id)) AS sibling_terminated_at,
    count_if(state = 'active') OVER (PARTITION BY cluster_id, coalesce(streams_instance, client_instance_id))
      AS active_siblings,
    CASE WHEN known_address IS NOT NULL THEN count(*) OVER (PARTITION BY cluster_id, known_address) END
      AS clients_of_address,
    count_if(state = 'active') OVER (PARTITION BY cluster_id, known_address) AS active_of_address
  FROM known
),

last_reported AS (
  SELECT
    c.cluster_id,
    c.client_instance_id,
    max(CASE WHEN p.metric = 'org.apache.kafka.producer.buffer.total.bytes' THEN p.value END)
      - min(CASE WHEN p.metric = 'org.apache.kafka.producer.buffer.available.bytes' THEN p.value END) AS buffered_bytes,
    max(CASE WHEN p.metric = 'org.apache.kafka.producer.requests.in.flight' THEN p.value END) AS requests_in_flight,
    count(CASE WHEN p.metric LIKE 'org.apache.kafka.consumer.%' THEN 1 END) > 0 AS is_consumer
  FROM clients AS c
  JOIN metric_points AS p
    ON p.landed_at = c.landed_at AND p.partition = c.partition AND p.offset = c.offset
    AND p.topic = c.topic AND p.source = c.source
  WHERE c.state = 'silent' AND c.library = 'java'
    AND (
      p.metric IN (
        'org.apache.kafka.producer.buffer.total.bytes',
        'org.apache.kafka.producer.buffer.available.bytes',
        'org.apache.kafka.producer.requests.in.flight'
      )
      OR p.metric LIKE 'org.apache.kafka.consumer.%'
    )
  GROUP BY c.cluster_id, c.client_instance_id
),

waves AS (
  SELECT cluster_id, at
  FROM client_events
  WHERE event = 'mass_silence'
    AND CAST(element_at(detail, 'share') AS DOUBLE) >= 0.5
    AND 3 * coalesce(CAST(element_at(detail, 'terminated') AS BIGINT), 0)
    <= CAST(element_at(detail, 'clients') AS BIGINT)
)

SELECT
  counted.cluster_id,
  counted.client_instance_id,
  client_id,
  application,
  owner,
  client_software_name,
  client_software_version,
  client_address,
  streams_instance,
  element_at(labels, 'group_id') AS group_id,
  state,
  CASE
    WHEN state <> 'silent' THEN NULL
    WHEN client_id RLIKE '^(consumer-)?spark-(kafka-(source|relation)|executor)-'
      OR element_at(labels, 'group_id') RLIKE '^spark-(kafka-(source|relation)|executor)-' THEN 'between_batches'
    WHEN EXISTS (
      SELECT 1
      FROM waves AS w
      WHERE coalesce(w.cluster_id, '') = coalesce(counted.cluster_id, '')
        AND abs(unix_millis(w.at) - unix_millis(counted.silent_at)) <= 360000
    ) THEN 'cluster_or_receiver'
    WHEN abs(unix_millis(sibling_terminated_at) - unix_millis(last_seen))
      <= 2 * coalesce(push_interval_ms, 300000) + 10000 THEN 'closed_with_siblings'
    WHEN client_id RLIKE '-StreamThread-[0-9]+-restore-consumer$' AND CASE
      WHEN streams_instance IS NOT NULL THEN active_siblings > 0
      ELSE known_address IS NOT NULL AND active_of_address > 0
    END THEN 'nothing_to_restore'
    WHEN client_id RLIKE '-StreamThread-[0-9]+-restore-consumer$' AND streams_instance IS NULL AND known_address IS NULL
      THEN 'unknown'
    WHEN clients_of_address > 1 AND active_of_address = 0 THEN 'process_gone'
    WHEN library = 'java' AND element_at(labels, 'group_id') IS NULL AND NOT coalesce(reported.is_consumer, FALSE)
      AND coalesce(reported.buffered_bytes, 0) <= 0 AND coalesce(reported.requests_in_flight, 0) <= 0
      THEN 'closed_without_flag'
    -- Before 1.21.4 franz-go closes without delivering its terminating push (known_client_bugs).
    WHEN library = 'unknown' OR library = 'franz-go' AND coalesce(library_number, 0) < 1021004 THEN 'unknown'
    ELSE 'killed_or_cut_off'
  END AS likely_cause,
  first_seen,
  last_seen,
  terminated_at,
  silent_at,
  unix_millis(as_of) - unix_millis(last_seen) AS not_seen_for_ms,
  push_interval_ms,
  pushes,
  missed_pushes,
  coverage,
  resumptions,
  duplicated,
  reported.buffered_bytes,
  reported.requests_in_flight
FROM counted
LEFT JOIN last_reported AS reported
  ON coalesce(reported.cluster_id, '') = coalesce(counted.cluster_id, '')
  AND reported.client_instance_id = counted.client_instance_id
