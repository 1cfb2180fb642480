-- What would the advice of each finding save in its hour? One row per client instance, hour and finding of a client
-- instance, as in instance_findings.
-- requests_saved and bytes_in_saved: NULL if the advice saves none, or nobody knows. Never more than the client had.
-- stored_byte_hours_saved: bytes_in_saved times the hours and replicas that the application's bytes have on average.
-- cost_saved: their price, as in application_cost. method: the formula in words; measured, assumed: what it rests on.
-- missing: why a number is NULL. Rows of one client don't add up: two findings may save the same requests.
-- Filter by landed_date, the UTC date of window_start: then other days aren't read.
WITH sent AS (
  SELECT
    cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at) AS window_start,
    element_at(attributes, 'topic') AS topic,
    sum(CASE WHEN metric LIKE '%.request.total' THEN delta END) AS requests,
    sum(CASE WHEN metric = 'org.apache.kafka.producer.topic.byte.total' THEN delta END) AS topic_bytes,
    avg(CASE WHEN metric = 'org.apache.kafka.producer.topic.compression.rate' THEN value END) AS compressed_to
  FROM metric_points
  WHERE metric IN (
    'org.apache.kafka.producer.request.total', 'org.apache.kafka.consumer.request.total',
    'org.apache.kafka.admin.client.request.total', 'org.apache.kafka.producer.topic.byte.total',
    'org.apache.kafka.producer.topic.compression.rate'
  ) AND delta_status NOT IN ('duplicate', 'conflict', 'too_late')
  GROUP BY
    cluster_id, client_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at),
    element_at(attributes, 'topic')
),

compressing AS (
  SELECT cluster_id, landed_date, window_start, topic, sum(topic_bytes) / sum(topic_bytes / compressed_to) AS ratio
  FROM sent
  WHERE topic_bytes > 0 AND compressed_to > 0 AND compressed_to < :compresses_below
  GROUP BY cluster_id, landed_date, window_start, topic
),

used AS (
  SELECT
    s.cluster_id, s.client_id, s.client_instance_id, s.landed_date, s.window_start,
    sum(s.requests) AS used_requests, sum(s.topic_bytes * (1 - c.ratio)) AS compressible_bytes
  FROM sent AS s
  LEFT JOIN compressing AS c
    ON c.cluster_id <=> s.cluster_id AND c.landed_date = s.landed_date AND c.window_start = s.window_start
    AND c.topic = s.topic
  GROUP BY s.cluster_id, s.client_id, s.client_instance_id, s.landed_date, s.window_start
),

hours AS (
  SELECT h.*, u.used_requests, u.compressible_bytes
  FROM instance_hours AS h
  LEFT JOIN used AS u
    ON u.cluster_id <=> h.cluster_id AND u.client_id <=> h.client_id
    AND u.client_instance_id <=> h.client_instance_id AND u.landed_date = h.landed_date
    AND u.window_start = h.window_start
),

detected AS (
  SELECT
    cluster_id, client_id, client_instance_id, landed_date, window_start, used_requests,
    array(
      :savings
    ) AS all_savings
  FROM hours
),

found AS (
  SELECT
    cluster_id, client_id, client_instance_id, landed_date, window_start, used_requests, explode_outer(all_savings) AS f
  FROM detected
),

told AS (
  SELECT
    cluster_id, client_id, client_instance_id, landed_date, window_start, used_requests, f.finding,
    CASE WHEN f.requests IS NOT NULL THEN greatest(0, least(f.requests, used_requests)) END AS requests_saved,
    CASE WHEN f.bytes_in IS NOT NULL THEN greatest(0, f.bytes_in) END AS bytes_in_saved,
    f.method, f.measured, f.assumed, f.untold
  FROM found
  WHERE f.finding IS NOT NULL
),

priced AS (
  -- Prices are those that application_cost had for the hour's application: its cost by its number.
  SELECT
    t.*, c.application, c.owner, c.environment, a.currency,
    t.bytes_in_saved * a.stored_byte_hours / nullif(a.bytes_in, 0) AS stored_byte_hours_saved,
    t.requests_saved IS NOT NULL AND t.used_requests IS NULL AS uncounted,
    t.bytes_in_saved IS NOT NULL AND a.storage_cost IS NULL AS unkept,
    t.requests_saved * a.requests_cost / nullif(a.requests, 0) AS requests_cost,
    t.bytes_in_saved * (a.bytes_in_cost + a.storage_cost) / nullif(a.bytes_in, 0) AS bytes_in_cost
  FROM told AS t
  LEFT JOIN clients AS c
    ON coalesce(c.cluster_id, '') = coalesce(t.cluster_id, '') AND c.client_instance_id = t.client_instance_id
  LEFT JOIN application_cost AS a
    ON a.cluster_id <=> t.cluster_id AND a.landed_date = t.landed_date AND a.window_start = t.window_start
    AND a.application <=> c.application AND a.owner <=> c.owner AND a.environment <=> c.environment
)

SELECT
  cluster_id, client_id, client_instance_id, window_start, finding, application, owner, environment, requests_saved,
  bytes_in_saved, CASE WHEN NOT unkept THEN stored_byte_hours_saved END AS stored_byte_hours_saved, currency,
  CASE
    WHEN untold IS NULL AND NOT uncounted AND NOT unkept
      THEN coalesce(requests_cost, 0) + coalesce(bytes_in_cost, 0) + CASE WHEN currency IS NULL THEN NULL ELSE 0 END
  END AS cost_saved,
  method, measured, assumed,
  nullif(
    concat_ws(
      '; ',
      untold,
      CASE WHEN untold IS NULL AND currency IS NULL THEN 'there is no price list' END,
      CASE WHEN uncounted AND currency IS NOT NULL
        THEN 'the client pushes no request.total, so the price list counts none of its requests' END,
      CASE WHEN unkept AND currency IS NOT NULL
        THEN 'the price list has no retention for a topic of the application' END
    ),
    ''
  ) AS missing,
  landed_date
FROM priced
