-- Which quota was in force when? One row per version of an entity's limit.
-- A version began in (not_before, valid_from]: between the last poll without it and the first with it.
-- limit_before: NULL means no limit. application, owner: of the entity's clients (entity_owners); NULL for <default>. measured: whether brokers sample the usage of this quota type.
SELECT
  q.cluster_id,
  q.user,
  q.client_id,
  e.application,
  e.owner,
  q.ip,
  q.quota_type,
  q.quota_limit,
  p.quota_limit AS limit_before,
  q.not_seen_at AS not_before,
  q.valid_from,
  q.valid_to,
  q.quota_type IN ('produce', 'fetch', 'request') AS measured
FROM quotas AS q
LEFT JOIN quotas AS p
  ON p.cluster_id = q.cluster_id AND p.user = q.user AND p.client_id = q.client_id AND p.ip = q.ip
  AND p.quota_type = q.quota_type AND p.valid_to = q.valid_from
LEFT JOIN entity_owners AS e
  ON coalesce(e.cluster_id, '') = coalesce(q.cluster_id, '') AND e.user = q.user AND e.client_id = q.client_id
