-- Which quota limits each client now? One row per client instance and measured quota type.
-- The most specific of Kafka's eight levels applies: user, then default user, then no user; within each of them client
-- id, then default client id, then no client id. level: 1 to 8. level and quota_limit are NULL if no quota matches.
-- bucket_user, bucket_client_id: the bucket in which brokers count the client; empty: all users, or all client ids.
SELECT
  cluster_id, client_instance_id, client_id, user, application, owner, state, first_seen, last_seen, quota_type,
  CASE WHEN quota_limit < 9223372036854775807 THEN quota_limit END AS quota_limit,
  level,
  CASE WHEN level > 6 THEN '' ELSE user END AS bucket_user,
  CASE WHEN level IN (3, 6) THEN '' ELSE client_id END AS bucket_client_id,
  quota_user,
  quota_client_id,
  valid_from
FROM (
  SELECT
    matched.*,
    row_number() OVER (PARTITION BY cluster_id, client_instance_id, quota_type ORDER BY level) AS place
  FROM (
    SELECT
      c.*,
      q.quota_limit,
      q.user AS quota_user,
      q.client_id AS quota_client_id,
      q.valid_from,
      -- '' of a quota: all users, or all client ids; of a client: it has no client id, or its user is unknown.
      CASE q.user WHEN '' THEN 6 WHEN c.user THEN 0 WHEN '<default>' THEN 3 END
      + CASE q.client_id WHEN '' THEN 3 WHEN c.client_id THEN 1 WHEN '<default>' THEN 2 END AS level
    FROM (
      SELECT
        cluster_id,
        client_instance_id,
        coalesce(client_id, '') AS client_id,
        coalesce(substr(principal, instr(principal, ':') + 1), '') AS user,
        application,
        owner,
        state,
        first_seen,
        last_seen,
        quota_type
      FROM clients
      LATERAL VIEW explode(array('produce', 'fetch', 'request')) AS quota_type
    ) AS c
    LEFT JOIN quotas AS q
      ON q.cluster_id = c.cluster_id AND q.quota_type = c.quota_type AND q.valid_to IS NULL AND q.ip = ''
      AND q.user IN (c.user, '<default>', '') AND q.client_id IN (c.client_id, '<default>', '')
      AND q.user || q.client_id <> ''
  ) AS matched
) AS placed
WHERE place = 1
