-- Which software do the client instances have, and how many principals? One row per software, the most frequent first.
-- versions, principals: how many there are of all instances.
WITH kinds AS (
  SELECT client_software_name, client_software_version, principal, count(*) AS instances
  FROM chosen
  GROUP BY client_software_name, client_software_version, principal
),

named AS (
  SELECT
    concat(coalesce(client_software_name, 'unknown'), ' ', coalesce(client_software_version, 'unknown')) AS software,
    principal,
    instances
  FROM kinds
)

SELECT
  software,
  sum(instances) AS instances,
  count(*) OVER () AS versions,
  (SELECT count(DISTINCT principal) FROM named) AS principals
FROM named
GROUP BY software
ORDER BY instances DESC, software
