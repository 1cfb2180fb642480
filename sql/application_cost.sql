-- What does each application cost? One row per cluster, hour, application, owner and environment; NULL: of clients without.
-- bytes_in: bytes of record batches that producers sent; bytes_out: bytes that consumers received from brokers; both as
-- brokers count them, but for retries and the few bytes around records. stored_byte_hours: bytes_in times the hours and
-- replicas of the price list. cross_zone_bytes: of zoned_bytes, which went between a client and a broker whose racks are
-- both known, those between two racks; both directions, only Java's clients tell them. cost: sum of the five costs by the
-- price list in force now. It is NULL if one of them is unknown; known_cost leaves these out, and missing says why.
-- Filter by landed_date, the UTC date of window_start: then other days aren't read.
WITH measured AS (
  SELECT
    cluster_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at) AS window_start, metric,
    element_at(attributes, 'topic') AS of_topic, element_at(attributes, 'node_id') AS node_id,
    element_at(attributes, 'node_role') AS node_role, sum(delta) AS increase
  FROM metric_points
  WHERE metric IN (
    'org.apache.kafka.producer.topic.byte.total', 'org.apache.kafka.producer.request.total',
    'org.apache.kafka.consumer.request.total', 'org.apache.kafka.admin.client.request.total',
    'org.apache.kafka.producer.node.incoming.byte.total', 'org.apache.kafka.producer.node.outgoing.byte.total',
    'org.apache.kafka.consumer.node.incoming.byte.total', 'org.apache.kafka.consumer.node.outgoing.byte.total'
  ) AND delta_status NOT IN ('duplicate', 'conflict', 'too_late')
  GROUP BY
    cluster_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at), metric, element_at(attributes, 'topic'),
    element_at(attributes, 'node_id'), element_at(attributes, 'node_role')
),

-- Whoever pushed at all: also the clients whose library doesn't tell its bytes.
pushing AS (
  SELECT cluster_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at) AS window_start, count(*) AS pushes
  FROM push_outcomes
  WHERE client_instance_id IS NOT NULL
  GROUP BY cluster_id, client_instance_id, landed_date, date_trunc('HOUR', landed_at)
),

-- The list of the cluster; without one, that of any cluster.
listed AS (
  SELECT p.*, l.cluster_id AS for_cluster
  FROM (
    SELECT c.cluster_id, max(p.cluster_id) AS of_cluster
    FROM (SELECT DISTINCT cluster_id FROM pushing) AS c
    LEFT JOIN prices AS p
      ON p.valid_to IS NULL AND p.cluster_id = c.cluster_id
    GROUP BY c.cluster_id
  ) AS l
  JOIN prices AS p
    ON p.valid_to IS NULL AND coalesce(p.cluster_id, '') = coalesce(l.of_cluster, '')
),

lists AS (
  SELECT
    for_cluster,
    max(currency) AS currency,
    max(CASE WHEN item = 'bytes_in' THEN price END) AS bytes_in_price,
    max(CASE WHEN item = 'bytes_out' THEN price END) AS bytes_out_price,
    max(CASE WHEN item = 'storage' THEN price END) AS storage_price,
    max(CASE WHEN item = 'requests' THEN price END) AS requests_price,
    max(CASE WHEN item = 'cross_zone' AND subject = '*' THEN price END) AS any_zone_price
  FROM listed
  GROUP BY for_cluster
),

kept AS (
  SELECT cluster_id, of_topic, retention_hours * replication_factor AS replica_hours
  FROM (
    SELECT
      t.cluster_id, t.of_topic, p.retention_hours, p.replication_factor,
      row_number() OVER (PARTITION BY t.cluster_id, t.of_topic ORDER BY p.position) AS place
    FROM (SELECT DISTINCT cluster_id, of_topic FROM measured WHERE of_topic IS NOT NULL) AS t
    JOIN listed AS p
      ON coalesce(p.for_cluster, '') = coalesce(t.cluster_id, '') AND p.item = 'topic'
      AND t.of_topic RLIKE concat('^(?:', p.subject, ')$')
  ) AS ranked
  WHERE place = 1
),

-- parts: what each metric adds to which column, with the client's zone and its price.
parts AS (
  SELECT
    m.cluster_id, m.landed_date, m.window_start, m.client_instance_id,
    CASE WHEN m.metric = 'org.apache.kafka.producer.topic.byte.total' THEN m.increase END AS bytes_in,
    CASE WHEN m.metric = 'org.apache.kafka.producer.topic.byte.total' THEN m.increase * k.replica_hours END
      AS stored_byte_hours,
    CASE
      WHEN m.metric = 'org.apache.kafka.producer.topic.byte.total' AND k.replica_hours IS NULL THEN m.of_topic
    END AS unkept_topic,
    CASE
      WHEN m.metric = 'org.apache.kafka.consumer.node.incoming.byte.total' AND m.node_role = 'broker' THEN m.increase
    END AS bytes_out,
    CASE WHEN m.metric LIKE '%.request.total' THEN m.increase END AS requests,
    CASE WHEN m.metric LIKE '%.node.%' AND m.node_role <> 'bootstrap' THEN m.increase END AS node_bytes,
    -- An admin client neither sends nor receives records.
    m.metric = 'org.apache.kafka.admin.client.request.total' AS of_admin,
    b.rack AS broker_rack,
    m.node_id
  FROM measured AS m
  LEFT JOIN kept AS k
    ON coalesce(k.cluster_id, '') = coalesce(m.cluster_id, '') AND k.of_topic = m.of_topic
  LEFT JOIN brokers AS b
    ON b.cluster_id = m.cluster_id AND CAST(b.broker_id AS STRING) = m.node_id AND b.valid_to IS NULL

  UNION ALL

  SELECT
    cluster_id, landed_date, window_start, client_instance_id, NULL, NULL, NULL, NULL, NULL, NULL, FALSE, NULL, NULL
  FROM pushing
),

owned AS (
  SELECT
    p.*, c.application, c.owner, c.environment, element_at(c.labels, 'client_rack') AS client_rack,
    coalesce(z.price, l.any_zone_price) AS zone_price
  FROM parts AS p
  LEFT JOIN clients AS c
    ON coalesce(c.cluster_id, '') = coalesce(p.cluster_id, '') AND c.client_instance_id = p.client_instance_id
  LEFT JOIN listed AS z
    ON coalesce(z.for_cluster, '') = coalesce(p.cluster_id, '') AND z.item = 'cross_zone'
    AND z.subject = element_at(c.labels, 'client_rack')
  LEFT JOIN lists AS l
    ON coalesce(l.for_cluster, '') = coalesce(p.cluster_id, '')
),

summed AS (
  SELECT
    cluster_id, landed_date, window_start, application, owner, environment,
    count(DISTINCT client_instance_id) AS instances,
    count(DISTINCT client_instance_id)
    - count(DISTINCT CASE WHEN node_bytes IS NOT NULL OR bytes_in IS NOT NULL OR of_admin THEN client_instance_id END)
      AS unmeasured_instances,
    coalesce(sum(bytes_in), 0) AS bytes_in,
    coalesce(sum(bytes_out), 0) AS bytes_out,
    coalesce(sum(requests), 0) AS requests,
    coalesce(sum(stored_byte_hours), 0) AS stored_byte_hours,
    coalesce(sort_array(collect_set(unkept_topic)), array()) AS unkept_topics,
    coalesce(sum(node_bytes), 0) AS node_bytes,
    coalesce(sum(CASE WHEN client_rack IS NOT NULL AND broker_rack IS NOT NULL THEN node_bytes END), 0) AS zoned_bytes,
    coalesce(sum(CASE WHEN client_rack <> broker_rack THEN node_bytes END), 0) AS cross_zone_bytes,
    coalesce(sum(CASE WHEN client_rack <> broker_rack THEN node_bytes * zone_price END), 0) AS zone_price_bytes,
    coalesce(
      sort_array(collect_set(
        CASE WHEN client_rack <> broker_rack AND node_bytes > 0 AND zone_price IS NULL THEN client_rack END
      )),
      array()
    ) AS unpriced_zones
  FROM owned
  GROUP BY cluster_id, landed_date, window_start, application, owner, environment
),

priced AS (
  SELECT
    s.*, l.currency,
    s.bytes_in / 1e9 * l.bytes_in_price AS bytes_in_cost,
    s.bytes_out / 1e9 * l.bytes_out_price AS bytes_out_cost,
    CASE WHEN size(s.unkept_topics) = 0 THEN s.stored_byte_hours / 1e9 / 720 * l.storage_price END AS storage_cost,
    s.requests / 1e6 * l.requests_price AS requests_cost,
    CASE
      WHEN l.any_zone_price = 0 THEN 0.0
      WHEN l.currency IS NOT NULL AND size(s.unpriced_zones) = 0 AND s.zoned_bytes >= s.node_bytes
        THEN s.zone_price_bytes / 1e9
    END AS cross_zone_cost
  FROM summed AS s
  LEFT JOIN lists AS l
    ON coalesce(l.for_cluster, '') = coalesce(s.cluster_id, '')
)

SELECT
  cluster_id, window_start, application, owner, environment, instances, unmeasured_instances, bytes_in, bytes_out, requests,
  stored_byte_hours, zoned_bytes, cross_zone_bytes, cross_zone_bytes / nullif(zoned_bytes, 0) AS cross_zone_share,
  currency, bytes_in_cost, bytes_out_cost, storage_cost, requests_cost, cross_zone_cost,
  CASE WHEN unmeasured_instances = 0
    THEN bytes_in_cost + bytes_out_cost + storage_cost + requests_cost + cross_zone_cost END AS cost,
  coalesce(bytes_in_cost, 0) + coalesce(bytes_out_cost, 0) + coalesce(storage_cost, 0) + coalesce(requests_cost, 0)
  + coalesce(cross_zone_cost, 0) AS known_cost,
  nullif(
    concat_ws(
      '; ',
      CASE WHEN currency IS NULL THEN 'there is no price list' END,
      CASE WHEN unmeasured_instances > 0
        THEN concat('the libraries of ', CAST(unmeasured_instances AS STRING), ' client instances push no bytes') END,
      CASE WHEN currency IS NOT NULL AND size(unkept_topics) > 0
        THEN concat('the price list has no retention for topic ', array_join(unkept_topics, ', ')) END,
      CASE WHEN currency IS NOT NULL AND size(unpriced_zones) > 0
        THEN concat('the price list has no price for zone ', array_join(unpriced_zones, ', ')) END,
      CASE WHEN currency IS NOT NULL AND zoned_bytes < node_bytes AND coalesce(cross_zone_cost, 1) <> 0
        THEN concat('the rack of the client or the broker is unknown for ',
          CAST(CAST(round(100 * (node_bytes - zoned_bytes) / node_bytes) AS INT) AS STRING), ' % of the traffic') END
    ),
    ''
  ) AS missing,
  landed_date
FROM priced
