-- Which client ids pushed, by how many instances? Principal, group and software are those of its instance with the latest
-- push that has one, of several the last by name.
WITH kinds AS (
  SELECT
    client_id,
    principal,
    group_id,
    software,
    count(*) AS instances,
    sum(pushes) AS pushes,
    max(last_push) AS last_push
  FROM chosen
  GROUP BY client_id, principal, group_id, software
),

placed AS (
  SELECT *, CAST(unix_micros(last_push) AS STRING) AS at FROM kinds
)

SELECT
  client_id,
  max_by(principal, CASE WHEN principal IS NOT NULL THEN concat(at, principal) END) AS principal,
  max_by(group_id, CASE WHEN group_id IS NOT NULL THEN concat(at, group_id) END) AS group_id,
  max_by(software, concat(at, software)) AS software,
  sum(instances) AS instances,
  count(DISTINCT software) AS versions,
  sum(pushes) AS pushes,
  max(last_push) AS last_push
FROM placed
GROUP BY client_id
ORDER BY client_id
