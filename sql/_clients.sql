-- Which clients are known, since when, in which state, and who owns them? One row per client instance.
-- owned_by: which alias or rule says it (client_ownership). If it ends with `unknown`, the first rule that may fit reads a
-- principal or an address that isn't known: no application then. library: java, librdkafka, franz-go, ..., by the name and
-- version of its software; unknown: sql/versions/client_versions.yml has no entry for it. library_version: that of the
-- library, not of a binding; library_number: the same as a number, such as 2010001 for 2.10.1.
SELECT
  cluster_id, client_instance_id, client_id, application, owner, environment, owned_by,
  client_software_name, client_software_version, principal, client_address, client_port, labels,
  group_member_ids, push_interval_ms, first_seen, last_seen, state, terminated_at, silent_at, pushes,
  missed_pushes, coverage, broker_id, brokers, resumptions, duplicated, source, topic, partition,
  offset, landed_at, library, library_version,
  :library_number AS library_number
FROM (
  SELECT
    o.*,
    :library AS library,
    :library_version AS library_version
  FROM client_ownership AS o
) AS c
