-- Which metrics do the clients push, what do they mean, and what may be summed? One row per metric and level of its points.
-- level: client (the whole of an instance), or the part of it that a point is about: node, topic, partition, ... libraries:
-- name and version of who pushed it. meaning, unit, aggregate, advice, measure: from the docs of Kafka and librdkafka
-- (source); NULL: not a metric that they describe. counted_again: metrics or levels in this cluster that count the same
-- as this row: never sum them with it.
WITH points AS (
  SELECT
    cluster_id,
    client_instance_id,
    metric,
    array_join(array_sort(map_keys(attributes)), ',') AS attribute_keys,
    kind,
    temporality,
    time
  FROM metric_points
),

pushed AS (
  SELECT
    cluster_id, client_instance_id, metric, attribute_keys, kind, temporality, count(*) AS points, min(time) AS first_time,
    max(time) AS last_time
  FROM points
  GROUP BY cluster_id, client_instance_id, metric, attribute_keys, kind, temporality
),

seen AS (
  SELECT
    p.cluster_id,
    p.metric,
    p.attribute_keys,
    p.kind,
    nullif(array_join(array_sort(array_distinct(collect_list(p.temporality))), ', '), '') AS temporality,
    nullif(
      array_join(
        array_sort(
          array_distinct(collect_list(c.client_software_name || ' ' || coalesce(c.client_software_version, '')))
        ),
        ', '
      ),
      ''
    ) AS libraries,
    count(DISTINCT p.client_instance_id) AS instances,
    sum(p.points) AS points,
    min(p.first_time) AS first_time,
    max(p.last_time) AS last_time
  FROM pushed AS p
  LEFT JOIN clients AS c
    ON coalesce(c.cluster_id, '') = coalesce(p.cluster_id, '') AND c.client_instance_id = p.client_instance_id
  GROUP BY p.cluster_id, p.metric, p.attribute_keys, p.kind
),

described AS (
  SELECT
    s.*,
    CASE
      WHEN s.attribute_keys = '' THEN 'client'
      WHEN concat(',', s.attribute_keys, ',') LIKE '%,partition,%' THEN 'partition'
      WHEN concat(',', s.attribute_keys, ',') LIKE '%,topic,%' THEN 'topic'
      WHEN concat(',', s.attribute_keys, ',') LIKE '%,node_id,%' THEN 'node'
      ELSE coalesce(k.level, s.attribute_keys)
    END AS level,
    k.unit,
    k.meaning,
    k.aggregate,
    k.advice,
    k.measure,
    k.source,
    concat(split_part(s.metric, '.', 4), ' ', coalesce(k.measure, s.metric)) AS counted
  FROM seen AS s
  LEFT JOIN known_metrics AS k
    ON k.metric = s.metric
),

alike AS (
  SELECT cluster_id, counted, array_sort(collect_list(metric || ' (' || level || ')')) AS names
  FROM described
  WHERE kind <> 'gauge'
  GROUP BY cluster_id, counted
)

SELECT
  d.cluster_id,
  d.metric,
  d.level,
  d.attribute_keys,
  d.kind,
  d.temporality,
  d.unit,
  d.meaning,
  d.aggregate,
  d.advice,
  d.measure,
  nullif(
    array_join(filter(a.names, name -> name <> d.metric || ' (' || d.level || ')'), ', '), ''
  ) AS counted_again,
  d.libraries,
  d.instances,
  d.points,
  d.first_time,
  d.last_time,
  d.source
FROM described AS d
LEFT JOIN alike AS a
  ON a.cluster_id <=> d.cluster_id AND a.counted = d.counted AND d.kind <> 'gauge'
