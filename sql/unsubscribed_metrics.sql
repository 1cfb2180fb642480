-- Which points did clients push although no subscription asked for them?
-- Excludes points that may belong to a subscription whose patterns can't be evaluated here.
SELECT p.*
FROM metric_points AS p
WHERE NOT EXISTS (
  SELECT 1
  FROM push_subscriptions AS s
  WHERE s.source = p.source AND s.topic = p.topic AND s.partition = p.partition AND s.offset = p.offset
    AND s.landed_at = p.landed_at
    AND size(filter(s.prefixes, prefix -> prefix = '*' OR startswith(p.metric, prefix))) > 0
)
