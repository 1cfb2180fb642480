-- Which Java clients went back to their bootstrap servers (KIP-1102), and which push telemetry though their data path
-- is dead? One row per episode, told by the push that shows it; at is when that push landed.
-- rebootstrap: a connection was made, and the bootstrap node had more requests than in any of the five pushes before;
-- alone neither says it, since telemetry may go over the bootstrap connection. data_path_dead: in three pushes in a row
-- no broker had a request while connections closed and metadata aged, or metadata is older than ten minutes (clients
-- renew it every five). librdkafka's metrics show neither: its connects before a subscription aren't counted.
WITH told AS (
  SELECT
    cluster_id,
    client_instance_id,
    client_id,
    source,
    topic,
    partition,
    offset,
    landed_at,
    sum(
      CASE
        WHEN endswith(metric, '.node.request.total') AND element_at(attributes, 'node_role') = 'bootstrap' THEN delta
      END
    ) AS bootstrap_requests,
    sum(
      CASE
        WHEN endswith(metric, '.node.request.total') AND element_at(attributes, 'node_role') <> 'bootstrap' THEN delta
      END
    ) AS broker_requests,
    sum(CASE WHEN endswith(metric, '.connection.creation.total') THEN delta END) AS connections_created,
    sum(CASE WHEN endswith(metric, '.connection.close.total') THEN delta END) AS connections_closed,
    max(CASE WHEN endswith(metric, '.metadata.age') THEN value END) AS metadata_age_s
  FROM metric_points
  WHERE (
      endswith(metric, '.node.request.total')
      OR endswith(metric, '.connection.creation.total')
      OR endswith(metric, '.connection.close.total')
      OR endswith(metric, '.metadata.age')
    )
    AND delta_status NOT IN ('duplicate', 'conflict', 'too_late')
  GROUP BY cluster_id, client_instance_id, client_id, source, topic, partition, offset, landed_at
),

placed AS (
  SELECT
    *,
    -- A client's first push holds its first bootstrap, which says nothing about its usual level.
    CASE
      WHEN lag(landed_at) OVER (PARTITION BY cluster_id, client_instance_id ORDER BY landed_at, offset) IS NOT NULL
        THEN bootstrap_requests
    END AS later_bootstrap_requests
  FROM told
),

followed AS (
  SELECT
    *,
    max(later_bootstrap_requests) OVER (
      PARTITION BY cluster_id, client_instance_id ORDER BY landed_at, offset ROWS BETWEEN 5 PRECEDING AND 1 PRECEDING
    ) AS usual_bootstrap_requests,
    metadata_age_s > lag(metadata_age_s) OVER pushes AND coalesce(broker_requests, 0) = 0 AND connections_closed > 0
      AS starved
  FROM placed
  WINDOW pushes AS (PARTITION BY cluster_id, client_instance_id ORDER BY landed_at, offset)
),

judged AS (
  SELECT
    *,
    connections_created > 0 AND bootstrap_requests > usual_bootstrap_requests AS rebootstrapped,
    coalesce(metadata_age_s > 600, FALSE)
    OR (
      coalesce(starved, FALSE)
      AND coalesce(lag(starved) OVER pushes, FALSE)
      AND coalesce(lag(starved, 2) OVER pushes, FALSE)
    ) AS dead
  FROM followed
  WINDOW pushes AS (PARTITION BY cluster_id, client_instance_id ORDER BY landed_at, offset)
),

episodes AS (
  SELECT
    *,
    dead AND NOT coalesce(lag(dead) OVER pushes, FALSE) AS dies
  FROM judged
  WINDOW pushes AS (PARTITION BY cluster_id, client_instance_id ORDER BY landed_at, offset)
)

SELECT
  e.cluster_id,
  e.client_instance_id,
  e.client_id,
  c.application,
  c.owner,
  e.landed_at AS at,
  CASE WHEN e.dies THEN 'data_path_dead' ELSE 'rebootstrap' END AS event,
  e.source,
  e.topic,
  e.partition,
  e.offset,
  e.bootstrap_requests,
  e.usual_bootstrap_requests,
  e.connections_created,
  e.connections_closed,
  e.metadata_age_s
FROM episodes AS e
LEFT JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(e.cluster_id, '') AND c.client_instance_id = e.client_instance_id
WHERE e.dies OR e.rebootstrapped
