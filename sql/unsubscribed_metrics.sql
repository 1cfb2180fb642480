-- Which points did clients push though nobody asked for them?
-- Points that a subscription may have asked for whose patterns can't be evaluated here are left out.
SELECT p.*
FROM metric_points AS p
WHERE NOT EXISTS (
  SELECT 1
  FROM push_subscriptions AS s
  WHERE s.source = p.source AND s.topic = p.topic AND s.partition = p.partition AND s.offset = p.offset
    AND s.landed_at = p.landed_at
    AND size(filter(s.prefixes, prefix -> prefix = '*' OR startswith(p.metric, prefix))) > 0
)
