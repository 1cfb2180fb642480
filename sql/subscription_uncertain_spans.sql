-- When is it not known for sure which subscriptions a cluster had?
-- Between two polls that found different ones, and before the first. Both ends are known again.
SELECT cluster_id, coalesce(not_seen_at, TIMESTAMP '1970-01-01 00:00:00 UTC') AS since, valid_from AS until
FROM subscriptions
UNION
SELECT cluster_id, last_seen_at AS since, valid_to AS until
FROM subscriptions
WHERE valid_to IS NOT NULL
