-- Which quota limits each client now? One row per client instance and measured quota type.
-- The most specific of Kafka's eight levels applies: user, then default user, then no user; within each of them client
-- id, then default client id, then no client id. level: 1 to 8. level and quota_limit are NULL if no quota matches.
-- If one of a user may apply to a client whose principal is unknown, or stored hashed, they are NULL, too.
-- bucket_user, bucket_client_id: the bucket in which brokers count the client; empty: all users, or all client ids.
SELECT
  cluster_id, client_instance_id, client_id, user, application, owner, state, first_seen, last_seen, quota_type,
  CASE WHEN is_certain AND p.quota_limit < 9223372036854775807 THEN p.quota_limit END AS quota_limit,
  CASE WHEN is_certain THEN p.level END AS level,
  CASE WHEN p.level > 6 THEN '' ELSE user END AS bucket_user,
  CASE WHEN p.level IN (3, 6) THEN '' ELSE client_id END AS bucket_client_id,
  CASE WHEN is_certain THEN p.quota_user END AS quota_user,
  CASE WHEN is_certain THEN p.quota_client_id END AS quota_client_id,
  CASE WHEN is_certain THEN p.valid_from END AS valid_from
FROM (
  SELECT
    matched.*,
    NOT user_is_unknown OR level > 3 AS is_certain,
    row_number() OVER (PARTITION BY cluster_id, client_instance_id, quota_type ORDER BY level) AS place
  FROM (
    SELECT
      c.*,
      q.quota_limit,
      q.user AS quota_user,
      q.client_id AS quota_client_id,
      q.valid_from,
      -- '' of a quota: all users, or all client ids; of a client: it has no client id, or its user is unknown.
      CASE q.user WHEN '' THEN 6 WHEN c.user THEN 0 WHEN '<default>' THEN 3 ELSE 0 END
      + CASE q.client_id WHEN '' THEN 3 WHEN c.client_id THEN 1 WHEN '<default>' THEN 2 END AS level
    FROM (
      SELECT
        cluster_id,
        client_instance_id,
        coalesce(client_id, '') AS client_id,
        coalesce(substr(principal, instr(principal, ':') + 1), '') AS user,
        coalesce(instr(principal, ':'), 0) = 0 AS user_is_unknown,
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
      AND (q.user IN (c.user, '<default>', '') OR c.user_is_unknown) AND q.client_id IN (c.client_id, '<default>', '')
      AND q.user || q.client_id <> ''
  ) AS matched
) AS p
WHERE place = 1
