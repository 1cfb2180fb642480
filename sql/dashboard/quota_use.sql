-- How close to their quotas did entities come over time, and how many were throttled?
SELECT CAST(floor(unix_millis(window_start) / :step_ms) * :step_ms AS BIGINT) AS at_ms, quota_type,
  max(used_percent) AS used_percent,
  count(DISTINCT CASE WHEN throttled THEN concat_ws('/', user, client_id, CAST(broker_id AS STRING)) END) AS throttled
FROM quota_usage
WHERE window_start >= :start AND window_start < :stop
GROUP BY at_ms, quota_type
ORDER BY quota_type, at_ms
