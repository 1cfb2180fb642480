-- How are the receivers doing? The latest status of each broker's receiver: received = landed + dropped + waiting.
SELECT cluster_id, broker_id, started_at, max(reported_at) AS reported_at, max(received) AS received, max(landed) AS landed,
  max(dropped_total) AS dropped, max_by(queue_depth, reported_at) AS waiting
FROM receiver_health
WHERE landed_at < :stop AND problem IS NULL
GROUP BY cluster_id, broker_id, started_at
ORDER BY reported_at DESC
LIMIT :top
