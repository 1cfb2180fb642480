-- How many client instances pushed in the time range, and how many of the pushes that were due have landed?
-- One row. Due is what an instance's interval lets expect between its first and its last push.
WITH pushed AS (
  SELECT
    cluster_id,
    client_instance_id,
    max(push_interval_ms) AS push_interval_ms,
    count(*) AS pushes,
    unix_millis(max(landed_at)) - unix_millis(min(landed_at)) AS pushing_ms
  FROM pushes
  WHERE landed_at >= :start AND landed_at < :stop AND client_instance_id IS NOT NULL
  GROUP BY cluster_id, client_instance_id
),

expected AS (
  SELECT *, CASE WHEN push_interval_ms > 0 THEN round(pushing_ms / push_interval_ms) ELSE 0 END AS due FROM pushed
)

SELECT
  count(*) AS instances,
  coalesce(sum(e.pushes), 0) AS pushes,
  median(e.push_interval_ms) AS push_interval_ms,
  coalesce(sum(e.due), 0) AS due,
  coalesce(sum(least(e.pushes - 1, e.due)), 0) AS landed,
  sort_array(collect_set(e.cluster_id)) AS clusters,
  coalesce(max(i.client_ids), 0) AS client_ids
FROM expected AS e
CROSS JOIN (
  SELECT count(DISTINCT coalesce(client_id, '')) AS client_ids
  FROM pushes
  WHERE landed_at >= :start AND landed_at < :stop AND client_instance_id IS NOT NULL
) AS i
