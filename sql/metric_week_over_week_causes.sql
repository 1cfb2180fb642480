-- Which metrics of a client id differ from the week before, unlike its peers', and what changed in between?
-- Rows of metric_week_over_week. Peers: the other client ids of the application, or if it has none, of the library, whose
-- hours are comparable. peer_group names what they have in common; NULL: the client id has several applications or
-- libraries, or none is known. peer_ratio: median of the peers' ratios; NULL without peers, or if this row isn't
-- comparable. deviation: ratio by peer_ratio; 1: it moved as its peers did. started, ended: its client instances, and
-- changes: what else is known to have changed (client_id_changes), from the start of the hour before to the end of this
-- one. They are NULL if the client id isn't in view clients. A change beside a deviation is a hint, not a proof.
WITH ids AS (
  SELECT
    cluster_id,
    client_id,
    CASE WHEN count(DISTINCT coalesce(application, '')) = 1 THEN max(application) END AS application,
    CASE WHEN count(DISTINCT coalesce(owner, '')) = 1 THEN max(owner) END AS owner,
    CASE
      WHEN count(DISTINCT coalesce(application, '')) > 1 THEN NULL
      WHEN max(application) IS NOT NULL THEN concat('application ', max(application))
      WHEN count(DISTINCT software) = 1 THEN concat('library ', max(software))
    END AS peer_group
  FROM (SELECT *, CASE WHEN library = 'unknown' THEN client_software_name ELSE library END AS software FROM clients) AS c
  WHERE client_id IS NOT NULL
  GROUP BY cluster_id, client_id
),

compared AS (
  SELECT w.*, i.application, i.owner, i.peer_group, i.client_id IS NOT NULL AS known
  FROM metric_week_over_week AS w
  LEFT JOIN ids AS i
    ON coalesce(i.cluster_id, '') = coalesce(w.cluster_id, '') AND i.client_id = w.client_id
),

placed AS (
  SELECT
    *,
    count(*) OVER (PARTITION BY cluster_id, window_start, metric, attribute_keys, peer_group) AS size,
    row_number() OVER (
      PARTITION BY cluster_id, window_start, metric, attribute_keys, peer_group ORDER BY ratio, client_id
    ) AS place
  FROM compared
  WHERE comparable AND ratio IS NOT NULL AND peer_group IS NOT NULL
),

-- The median of the others: of the places without its own, the two in the middle, which are one if the others are odd.
middles AS (
  SELECT
    *,
    CAST(floor(size / 2) AS INT) + CASE WHEN floor(size / 2) >= place THEN 1 ELSE 0 END AS lower,
    CAST(floor((size + 1) / 2) AS INT) + CASE WHEN floor((size + 1) / 2) >= place THEN 1 ELSE 0 END AS upper
  FROM placed
),

peers AS (
  SELECT
    m.cluster_id,
    m.window_start,
    m.client_id,
    m.metric,
    m.attribute_keys,
    m.size - 1 AS peers,
    avg(o.ratio) AS peer_ratio
  FROM middles AS m
  LEFT JOIN placed AS o
    ON coalesce(o.cluster_id, '') = coalesce(m.cluster_id, '') AND o.window_start = m.window_start
    AND o.metric = m.metric AND o.attribute_keys <=> m.attribute_keys AND o.peer_group = m.peer_group
    AND o.place IN (m.lower, m.upper) AND m.size > 1
  GROUP BY m.cluster_id, m.window_start, m.client_id, m.metric, m.attribute_keys, m.size
),

between_hours AS (
  SELECT
    h.cluster_id,
    h.client_id,
    h.window_start,
    count(CASE WHEN c.change IN ('started', 'new_version') THEN 1 END) AS started,
    count(CASE WHEN c.change = 'ended' THEN 1 END) AS ended,
    sort_array(
      collect_set(
        CASE c.change
          WHEN 'new_version' THEN concat('new_version: ', coalesce(c.before, 'unknown'), ' to ', coalesce(c.after, 'unknown'))
          WHEN 'quota' THEN concat('quota ', c.subject, ': ', c.before, ' to ', c.after)
          WHEN 'subscription' THEN concat('subscription ', c.subject, ': ', c.before, ' to ', c.after)
          WHEN 'first_seen' THEN 'first_seen'
        END
      )
    ) AS changes
  FROM (SELECT DISTINCT cluster_id, client_id, window_start FROM compared) AS h
  JOIN client_id_changes AS c
    ON coalesce(c.cluster_id, '') = coalesce(h.cluster_id, '') AND c.client_id = h.client_id
    AND c.at > h.window_start - INTERVAL 7 DAYS AND c.at <= h.window_start + INTERVAL 1 HOUR
  GROUP BY h.cluster_id, h.client_id, h.window_start
)

SELECT
  c.cluster_id,
  c.window_start,
  c.client_id,
  c.application,
  c.owner,
  c.metric,
  c.attribute_keys,
  coalesce(c.rate, c.mean) AS amount,
  coalesce(c.rate_before, c.mean_before) AS amount_before,
  c.ratio,
  c.comparable,
  c.peer_group,
  coalesce(p.peers, 0) AS peers,
  p.peer_ratio,
  c.ratio / nullif(p.peer_ratio, 0) AS deviation,
  CASE WHEN c.known THEN coalesce(b.started, 0) END AS started,
  CASE WHEN c.known THEN coalesce(b.ended, 0) END AS ended,
  CASE WHEN c.known THEN coalesce(b.changes, array()) END AS changes
FROM compared AS c
LEFT JOIN peers AS p
  ON coalesce(p.cluster_id, '') = coalesce(c.cluster_id, '') AND p.window_start = c.window_start
  AND p.client_id = c.client_id AND p.metric = c.metric AND p.attribute_keys <=> c.attribute_keys
LEFT JOIN between_hours AS b
  ON coalesce(b.cluster_id, '') = coalesce(c.cluster_id, '') AND b.client_id = c.client_id
  AND b.window_start = c.window_start
