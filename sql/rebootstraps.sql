-- Which clients rebootstrapped (KIP-1102), and which pushed telemetry while their data path was dead, and until when?
-- One row per lifecycle event (docs/lifecycle.md). at: landing time of the push that shows it. bootstrap: requests to
-- bootstrap nodes (Java), or number of bootstrap nodes (librdkafka), in that push; usual_bootstrap: the same in the
-- client's last normal push. restored_at: NULL while the data path is dead. Without a loss of brokers: from Kafka 4.4 on, a
-- connection to another cluster or broker at a reused address causes one, too (KIP-1242).
WITH lifecycle_events AS (
  SELECT
    *,
    lead(CASE WHEN event = 'data_path_restored' THEN at END) OVER (
      PARTITION BY cluster_id, client_instance_id, event = 'rebootstrap' ORDER BY at, offset
    ) AS restored_at
  FROM client_events
  WHERE event IN ('rebootstrap', 'data_path_dead', 'data_path_restored')
)

SELECT
  e.cluster_id,
  e.client_instance_id,
  e.client_id,
  c.application,
  c.owner,
  e.at,
  e.event,
  e.source,
  e.topic,
  e.partition,
  e.offset,
  TRY_CAST(element_at(e.detail, 'bootstrap') AS BIGINT) AS bootstrap,
  TRY_CAST(element_at(e.detail, 'usual_bootstrap') AS BIGINT) AS usual_bootstrap,
  TRY_CAST(element_at(e.detail, 'connections_created') AS BIGINT) AS connections_created,
  TRY_CAST(element_at(e.detail, 'metadata_age_s') AS BIGINT) AS metadata_age_s,
  TRY_CAST(element_at(e.detail, 'answered_at') AS TIMESTAMP) AS answered_at,
  e.restored_at
FROM lifecycle_events AS e
LEFT JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(e.cluster_id, '') AND c.client_instance_id = e.client_instance_id
WHERE e.event <> 'data_path_restored'
