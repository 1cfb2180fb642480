-- Which clients went back to their bootstrap servers (KIP-1102), and which pushed telemetry though their data path was
-- dead, until when? One row per event, as the lifecycle told it (docs/lifecycle.md); at is when the push landed that
-- shows it. bootstrap, usual_bootstrap: requests to bootstrap nodes (Java) or bootstrap nodes (librdkafka) of that push,
-- and in the client's last quiet one. restored_at: NULL while the data path is dead.
WITH told AS (
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
  CAST(element_at(e.detail, 'bootstrap') AS BIGINT) AS bootstrap,
  CAST(element_at(e.detail, 'usual_bootstrap') AS BIGINT) AS usual_bootstrap,
  CAST(element_at(e.detail, 'connections_created') AS BIGINT) AS connections_created,
  CAST(element_at(e.detail, 'metadata_age_s') AS BIGINT) AS metadata_age_s,
  CAST(element_at(e.detail, 'answered_at') AS TIMESTAMP) AS answered_at,
  e.restored_at
FROM told AS e
LEFT JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(e.cluster_id, '') AND c.client_instance_id = e.client_instance_id
WHERE e.event <> 'data_path_restored'
