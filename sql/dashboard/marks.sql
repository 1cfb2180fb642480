-- What changed that the plots should mark? Deployments, restarts of many, changes of quotas and subscriptions, and lost
-- clusters. One row per window: the :top windows in which the most changed.
WITH changes AS (
  SELECT e.at AS at, concat('new version of ', coalesce(e.client_id, 'a client')) AS what
  FROM client_events AS e
  WHERE e.event = 'software_changed' AND e.landed_at >= :start AND e.landed_at < :stop
    AND e.client_instance_id IN (SELECT client_instance_id FROM chosen)
  UNION ALL
  SELECT e.at, concat(translate(e.event, '_', ' '), ': ', coalesce(e.client_id, 'clients'))
  FROM client_events AS e
  WHERE e.event IN ('mass_restart', 'mass_silence', 'data_path_dead', 'rebootstrap') AND e.landed_at >= :start
    AND e.landed_at < :stop
    AND (e.client_instance_id IS NULL OR e.client_instance_id IN (SELECT client_instance_id FROM chosen))
  UNION ALL
  SELECT min(e.at), concat('restart of ', e.client_id)
  FROM client_events AS e
  WHERE e.event IN ('first_seen', 'terminated') AND e.client_id IS NOT NULL AND :filters > 0
    AND e.landed_at >= :start AND e.landed_at < :stop
    AND e.client_instance_id IN (SELECT client_instance_id FROM chosen)
  GROUP BY e.client_id, floor(unix_millis(e.at) / :step_ms)
  HAVING count(DISTINCT e.event) = 2
  UNION ALL
  SELECT q.valid_from, concat('quota ', q.quota_type, ' of ', concat_ws(' ', nullif(q.user, ''), nullif(q.client_id, '')))
  FROM quotas AS q
  WHERE q.not_seen_at IS NOT NULL AND q.valid_from >= :start AND q.valid_from < :stop
  UNION ALL
  SELECT s.valid_from, concat('subscription ', s.name)
  FROM subscriptions AS s
  WHERE s.not_seen_at IS NOT NULL AND s.valid_from >= :start AND s.valid_from < :stop
)

SELECT CAST(unix_millis(min(at)) AS BIGINT) AS at_ms, count(*) AS changes,
  CASE WHEN count(*) > 3 THEN concat(min(what), ' and ', CAST(count(*) - 1 AS STRING), ' more') ELSE array_join(sort_array(collect_set(what)), '; ') END AS what
FROM changes
GROUP BY floor(unix_millis(at) / :step_ms)
ORDER BY changes DESC, at_ms
LIMIT :top
