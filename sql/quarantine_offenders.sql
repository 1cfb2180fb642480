-- Whose pushes and points are rejected? One row per client instance and reason; offender_rank 1 has the most rows.
-- Pushes without a client instance id are told apart by client id. application, owner: of the client instance; NULL for
-- pushes without one.
-- payload_bytes: size of its payloads in table quarantine. detail: an example of the reason in words.
SELECT
  dense_rank() OVER (ORDER BY rejected_of_client DESC, q.cluster_id, q.client_instance_id, q.without_instance) AS offender_rank,
  q.cluster_id, q.client_instance_id, q.client_id, c.application, c.owner, scope, reason, rejected, payload_bytes, first_at, last_at, detail
FROM (
  SELECT *, sum(rejected) OVER (PARTITION BY cluster_id, client_instance_id, without_instance) AS rejected_of_client
  FROM (
    SELECT
      cluster_id,
      client_instance_id,
      CASE WHEN client_instance_id IS NULL THEN client_id END AS without_instance,
      max(client_id) AS client_id,
      scope,
      reason,
      count(*) AS rejected,
      CAST(coalesce(sum(octet_length(payload)), 0) AS BIGINT) AS payload_bytes,
      min(landed_at) AS first_at,
      max(landed_at) AS last_at,
      max(detail) AS detail
    FROM quarantine
    GROUP BY
      cluster_id, client_instance_id, CASE WHEN client_instance_id IS NULL THEN client_id END, scope, reason
  ) AS per_reason
) AS q
LEFT JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(q.cluster_id, '') AND c.client_instance_id = q.client_instance_id
