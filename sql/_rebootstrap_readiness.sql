-- Which clients would reconnect if all brokers got new addresses? One row per software and version.
-- readiness: none (Java before 3.8, librdkafka before 2.10), opt_in (KIP-899 from Java 3.8: only with
-- metadata.recovery.strategy=rebootstrap), default (KIP-1102: Java from 4.0, librdkafka from 2.12), false_triggers
-- (librdkafka 2.10 and 2.11 rebootstrap needlessly: update), unknown (another library, or no version). as_of: the date of
-- what is known about libraries.
SELECT
  cluster_id,
  library,
  library_version,
  client_software_name,
  client_software_version,
  CASE
    WHEN library NOT IN ('java', 'librdkafka') OR library_number IS NULL THEN 'unknown'
    WHEN library = 'java' AND library_number < 3008000 THEN 'none'
    WHEN library = 'java' AND library_number < 4000000 THEN 'opt_in'
    WHEN library = 'librdkafka' AND library_number < 2010000 THEN 'none'
    WHEN library = 'librdkafka' AND library_number < 2012000 THEN 'false_triggers'
    ELSE 'default'
  END AS readiness,
  count(*) AS clients,
  count_if(state = 'active') AS active_clients,
  count(DISTINCT application) AS applications,
  CAST(:as_of AS DATE) AS as_of
FROM clients
GROUP BY cluster_id, library, library_version, library_number, client_software_name, client_software_version
