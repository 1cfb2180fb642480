-- Which clients would reconnect if all brokers got new addresses? One row per software and version.
-- readiness: none (Java before 3.8, librdkafka before 2.10), opt_in (KIP-899 from Java 3.8: only with
-- metadata.recovery.strategy=rebootstrap), default (KIP-1102: Java from 4.0, librdkafka from 2.12), false_triggers
-- (librdkafka 2.10 and 2.11 rebootstrap needlessly: update), unknown (another software, or no version).
WITH versions AS (
  SELECT
    *,
    CASE
      WHEN client_software_name = 'apache-kafka-java' THEN 'java'
      WHEN client_software_name = 'librdkafka' OR client_software_version LIKE '%rdkafka-%' THEN 'librdkafka'
    END AS library,
    CASE
      WHEN client_software_version LIKE '%rdkafka-%'
        THEN regexp_extract(client_software_version, 'rdkafka-v?([0-9]+[.][0-9]+)', 1)
      ELSE regexp_extract(client_software_version, '^v?([0-9]+[.][0-9]+)', 1)
    END AS release
  FROM clients
),

numbered AS (
  SELECT
    *,
    CASE
      WHEN coalesce(release, '') <> ''
        THEN 1000 * CAST(TRY_CAST(regexp_extract(release, '^([0-9]+)', 1) AS INT) AS BIGINT)
          + TRY_CAST(regexp_extract(release, '([0-9]+)$', 1) AS INT)
    END AS number
  FROM versions
)

SELECT
  cluster_id,
  client_software_name,
  client_software_version,
  CASE
    WHEN library IS NULL OR number IS NULL THEN 'unknown'
    WHEN library = 'java' AND number < 3008 THEN 'none'
    WHEN library = 'java' AND number < 4000 THEN 'opt_in'
    WHEN library = 'librdkafka' AND number < 2010 THEN 'none'
    WHEN library = 'librdkafka' AND number < 2012 THEN 'false_triggers'
    ELSE 'default'
  END AS readiness,
  count(*) AS clients,
  count_if(state = 'active') AS active_clients,
  count(DISTINCT application) AS applications
FROM numbered
GROUP BY cluster_id, client_software_name, client_software_version, library, number
