-- How much of its quota did each client id and user use over time, and how long was it delayed?
-- One row per quota, entity and window, of the :entities that were delayed longest, or came nearest to their limit.
-- entity: user and client id as brokers count them; what isn't part of it stands for all. quota_limit: the last one.
WITH used AS (
  SELECT
    CAST(floor(unix_millis(window_start) / :step_ms) * :step_ms AS BIGINT) AS at_ms,
    quota_type, user, client_id,
    max(used_percent) AS used_percent,
    max(throttle_ms) AS throttle_ms,
    10 * count(DISTINCT CASE WHEN throttled THEN window_start END) AS throttled_s,
    max_by(quota_limit, window_start) AS quota_limit
  FROM quota_windows
  WHERE window_seconds = 10 AND window_start >= :start AND window_start < :stop
    AND (
      :filters = 0
      OR client_id <> '' AND (coalesce(cluster_id, ''), client_id) IN (SELECT coalesce(cluster_id, ''), client_id FROM chosen)
      OR client_id = '' AND user IN (SELECT substr(principal, instr(principal, ':') + 1) FROM chosen)
    )
  GROUP BY at_ms, quota_type, user, client_id
),

ranked AS (
  SELECT
    quota_type, user, client_id,
    row_number() OVER (
      ORDER BY coalesce(max(throttle_ms), 0) DESC, max(used_percent) DESC NULLS LAST, user, client_id, quota_type
    ) AS place
  FROM used
  GROUP BY quota_type, user, client_id
)

SELECT
  u.at_ms, u.quota_type, u.user, u.client_id,
  concat(u.quota_type, ': ', CASE WHEN u.user = '' THEN 'all users' ELSE u.user END, ', ', CASE WHEN u.client_id = '' THEN 'all client ids' ELSE u.client_id END) AS entity,
  u.used_percent, u.throttle_ms, u.throttled_s, u.quota_limit, r.place
FROM used AS u
JOIN ranked AS r
  ON r.quota_type = u.quota_type AND r.user = u.user AND r.client_id = u.client_id
WHERE r.place <= :entities
ORDER BY r.place, u.at_ms
