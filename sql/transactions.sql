-- How much time do transactional producers spend on transactions, and do they abort them? One row per producer instance
-- with a transactional.id and minute of its clock. Times are in ms, of the calls of the application's thread. No library
-- pushes how many transactions there were: commits_at_least, aborts_at_least count the pushes in whose interval at least
-- one commit, or abort, ended. abort_ratio: aborts' share of the time of both, 0 to 1. NULL: not pushed; only Java pushes
-- these metrics.
WITH minutes AS (
  SELECT
    cluster_id,
    client_instance_id,
    minute,
    count(DISTINCT landed_at) AS pushes,
    sum(CASE WHEN name = 'producer.record.send.total' THEN delta END) AS records_sent,
    sum(CASE WHEN name = 'producer.txn.init.time.ns.total' THEN delta END) / 1e6 AS init_ms,
    sum(CASE WHEN name = 'producer.txn.begin.time.ns.total' THEN delta END) / 1e6 AS begin_ms,
    sum(CASE WHEN name = 'producer.txn.send.offsets.time.ns.total' THEN delta END) / 1e6 AS send_offsets_ms,
    sum(CASE WHEN name = 'producer.txn.commit.time.ns.total' THEN delta END) / 1e6 AS commit_ms,
    sum(CASE WHEN name = 'producer.txn.abort.time.ns.total' THEN delta END) / 1e6 AS abort_ms,
    count(CASE WHEN name = 'producer.txn.commit.time.ns.total' AND delta > 0 THEN 1 END) AS commits_at_least,
    count(CASE WHEN name = 'producer.txn.abort.time.ns.total' AND delta > 0 THEN 1 END) AS aborts_at_least
  FROM counted_points
  WHERE metric = 'org.apache.kafka.producer.record.send.total' OR metric LIKE 'org.apache.kafka.producer.txn.%'
  GROUP BY cluster_id, client_instance_id, minute
)

SELECT
  m.cluster_id,
  element_at(c.labels, 'transactional_id') AS transactional_id,
  m.minute,
  m.client_instance_id,
  c.client_id,
  c.application,
  c.owner,
  c.client_software_name,
  c.client_software_version,
  m.pushes,
  m.records_sent,
  m.init_ms,
  m.begin_ms,
  m.send_offsets_ms,
  m.commit_ms,
  m.abort_ms,
  m.commits_at_least,
  m.aborts_at_least,
  m.abort_ms / nullif(m.commit_ms + m.abort_ms, 0) AS abort_ratio
FROM minutes AS m
JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(m.cluster_id, '') AND c.client_instance_id = m.client_instance_id
WHERE element_at(c.labels, 'transactional_id') IS NOT NULL
