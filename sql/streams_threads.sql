-- What does each thread of Kafka Streams do? One row per thread and minute of its clock.
-- Pushed by the thread's main consumer (KIP-1076). application_id: application.id. state, tasks: of the last push in the
-- minute. poll_ratio, process_ratio, commit_ratio: mean share of the thread's time, 0 to 1. restoring_tasks: most active
-- tasks at a time whose state is restored; restored_records_per_s: the greatest rate that it pushed, which Kafka computes
-- over the last 30 to 60 s. Both are of its state updater thread; they may miss a restoration that is shorter than a push
-- interval, but not its rate. dropped_records: of all of its tasks.
WITH points AS (
  SELECT *, max(landed_at) OVER (PARTITION BY cluster_id, client_instance_id, minute) AS last_at
  FROM counted_points
  WHERE metric LIKE 'org.apache.kafka.stream.thread.%'
    OR metric LIKE 'org.apache.kafka.stream.state.updater.%'
    OR metric = 'org.apache.kafka.stream.task.dropped.records.total'
),

minutes AS (
  SELECT
    cluster_id,
    client_instance_id,
    minute,
    count(DISTINCT landed_at) AS pushes,
    max(CASE WHEN name = 'stream.thread.thread.state' THEN element_at(attributes, 'thread_id') END) AS thread_id,
    max(CASE WHEN name = 'stream.thread.thread.state' THEN element_at(attributes, 'process_id') END) AS process_id,
    max(CASE WHEN name = 'stream.thread.thread.state' AND landed_at = last_at THEN value END) AS state,
    count(
      DISTINCT CASE
        WHEN name = 'stream.task.dropped.records.total' AND landed_at = last_at THEN element_at(attributes, 'task_id')
      END
    ) AS tasks,
    sum(CASE WHEN name = 'stream.thread.task.created.total' THEN delta END) AS tasks_created,
    sum(CASE WHEN name = 'stream.thread.task.closed.total' THEN delta END) AS tasks_closed,
    sum(CASE WHEN name = 'stream.thread.process.total' THEN delta END) AS records_processed,
    sum(CASE WHEN name = 'stream.thread.commit.total' THEN delta END) AS commits,
    max(CASE WHEN name = 'stream.thread.commit.latency.max' THEN value END) AS commit_latency_max_ms,
    max(CASE WHEN name = 'stream.thread.process.latency.max' THEN value END) AS process_latency_max_ms,
    avg(CASE WHEN name = 'stream.thread.poll.ratio' THEN value END) AS poll_ratio,
    avg(CASE WHEN name = 'stream.thread.process.ratio' THEN value END) AS process_ratio,
    avg(CASE WHEN name = 'stream.thread.commit.ratio' THEN value END) AS commit_ratio,
    max(CASE WHEN name = 'stream.state.updater.active.restoring.tasks' THEN value END) AS restoring_tasks,
    max(CASE WHEN name = 'stream.state.updater.restore.records.rate' THEN value END) AS restored_records_per_s,
    max(CASE WHEN name = 'stream.state.updater.standby.updating.tasks' THEN value END) AS standby_tasks,
    sum(CASE WHEN name = 'stream.task.dropped.records.total' THEN delta END) AS dropped_records
  FROM points
  GROUP BY cluster_id, client_instance_id, minute
)

SELECT
  m.cluster_id,
  element_at(c.labels, 'group_id') AS application_id,
  m.process_id,
  m.thread_id,
  m.minute,
  m.client_instance_id,
  c.client_id,
  c.application,
  c.owner,
  c.client_software_version,
  m.pushes,
  CASE m.state
    WHEN 0 THEN 'CREATED'
    WHEN 1 THEN 'STARTING'
    WHEN 2 THEN 'PARTITIONS_REVOKED'
    WHEN 3 THEN 'PARTITIONS_ASSIGNED'
    WHEN 4 THEN 'RUNNING'
    WHEN 5 THEN 'PENDING_SHUTDOWN'
    WHEN 6 THEN 'DEAD'
  END AS state,
  m.tasks,
  m.tasks_created,
  m.tasks_closed,
  m.records_processed,
  m.commits,
  m.commit_latency_max_ms,
  m.process_latency_max_ms,
  m.poll_ratio,
  m.process_ratio,
  m.commit_ratio,
  m.restoring_tasks,
  m.restored_records_per_s,
  m.standby_tasks,
  m.dropped_records
FROM minutes AS m
LEFT JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(m.cluster_id, '') AND c.client_instance_id = m.client_instance_id
WHERE m.thread_id IS NOT NULL
