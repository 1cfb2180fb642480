-- Which client libraries and versions are in use, by whom, and what is wrong with them? One row per cluster and
-- version. library: unknown, if sql/versions/client_versions.yml has no entry for the software; library_version: that
-- of the library, not of a binding. supported: NULL if it isn't known. bugs: known bugs of the version; fixed_in: the
-- first version without any of them. worst: what the worst of them affects: data, security, process, connections or
-- telemetry. works_with_brokers_4: brokers from 4.0 on refuse old protocols (KIP-896); NULL: unknown, also for members
-- of consumer groups that push no telemetry, which are the row without a software name: brokers before 4.0 count the
-- requests that 4.0 refuses as DeprecatedRequestsPerSec. as_of: the date of what is known.
WITH seen AS (
  SELECT
    cluster_id, client_software_name AS software_name, client_software_version AS software_version, library,
    library_version, library_number, client_id, application, owner, state, last_seen
  FROM clients

  UNION ALL

  SELECT cluster_id, NULL, NULL, 'unknown', NULL, NULL, client_id, application, owner, 'active', NULL
  FROM consumer_group_members
  WHERE NOT pushing
),

counted AS (
  SELECT
    cluster_id, software_name, software_version, library, library_version, library_number AS number,
    count(*) AS instances,
    count(CASE WHEN state = 'active' THEN 1 END) AS active_instances,
    count(DISTINCT client_id) AS client_ids,
    coalesce(sort_array(collect_set(application)), array()) AS applications,
    coalesce(sort_array(collect_set(owner)), array()) AS owners,
    max(last_seen) AS last_seen
  FROM seen
  GROUP BY cluster_id, software_name, software_version, library, library_version, library_number
),

libraries AS (
  SELECT
    library, latest, nullif(floor_number, :never) AS floor_number,
    nullif(supported_number, :never) AS supported_number
  FROM VALUES
    :rows
  AS t(library, latest, floor_number, supported_number)
),

buggy AS (
  SELECT
    n.cluster_id, n.software_name, n.software_version,
    sort_array(collect_set(b.bug)) AS bugs,
    :fixed AS fixed_in,
    element_at(array('data', 'security', 'process', 'connections', 'telemetry'), CAST(min(
      CASE b.affects
        WHEN 'data' THEN 1 WHEN 'security' THEN 2 WHEN 'process' THEN 3 WHEN 'connections' THEN 4 ELSE 5
      END
    ) AS INT)) AS worst
  FROM counted AS n
  JOIN known_client_bugs AS b
    ON b.library = n.library AND n.number >= b.first_number AND n.number < b.fixed_number
  GROUP BY n.cluster_id, n.software_name, n.software_version
)

SELECT
  n.cluster_id,
  n.library,
  n.library_version,
  n.software_name,
  n.software_version,
  n.instances,
  n.active_instances,
  n.client_ids,
  n.applications,
  n.owners,
  l.latest,
  n.number >= l.supported_number AS supported,
  e.end_of_life,
  coalesce(b.bugs, array()) AS bugs,
  b.worst,
  b.fixed_in,
  n.number >= l.floor_number AS works_with_brokers_4,
  n.last_seen,
  CAST(:as_of AS DATE) AS as_of
FROM counted AS n
LEFT JOIN libraries AS l
  ON l.library = n.library
LEFT JOIN client_releases AS e
  ON e.library = n.library
  AND e.minor_release = concat(split_part(n.library_version, '.', 1), '.', split_part(n.library_version, '.', 2))
LEFT JOIN buggy AS b
  ON coalesce(b.cluster_id, '') = coalesce(n.cluster_id, '')
  AND coalesce(b.software_name, '') = coalesce(n.software_name, '')
  AND coalesce(b.software_version, '') = coalesce(n.software_version, '')
