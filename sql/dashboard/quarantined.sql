-- What was quarantined, why, and from which client?
SELECT q.scope, q.reason, coalesce(q.client_id, '') AS client_id, count(*) AS rows, max(q.landed_at) AS last,
  max_by(q.detail, q.landed_at) AS detail
FROM quarantine AS q
WHERE q.landed_at >= :start AND q.landed_at < :stop
GROUP BY q.scope, q.reason, coalesce(q.client_id, '')
ORDER BY rows DESC, q.scope, q.reason, client_id
LIMIT :top
