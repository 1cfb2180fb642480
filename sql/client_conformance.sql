-- Does each client library obey KIP-714? One row per cluster, library, software, version and rule.
-- rule: interval (a push comes no earlier than its interval, unless something allows it: push_discipline), no_gap (none
-- is missing before it; also the network's or a broker's fault), subscribed_names (each point was asked for),
-- delta_temporality (brokers ask for DELTA, a proxy may not), readable (a push decodes, and none of its points is rejected), goodbye (an
-- instance that ended had pushed once more, with the terminating flag; after a crash it can't).
-- section: of KIP-714. checked: pushes, points or instances that tell; broken: those of them against the rule; instances:
-- in which it was broken. Rules of which nothing tells have no row. example: the instance that broke it most often.
WITH told AS (
  SELECT cluster_id, client_instance_id, 'interval' AS rule, 1 AS checked,
    CASE WHEN early AND early_reason IS NULL THEN 1 ELSE 0 END AS broken
  FROM push_discipline
  WHERE expected_ms IS NOT NULL
  UNION ALL
  SELECT cluster_id, client_instance_id, 'no_gap', 1, CASE WHEN missed > 0 THEN 1 ELSE 0 END
  FROM push_discipline
  WHERE missed IS NOT NULL
  UNION ALL
  SELECT cluster_id, client_instance_id, 'subscribed_names', points, 0
  FROM push_outcomes
  WHERE points > 0 AND cluster_id IN (SELECT cluster_id FROM subscriptions)
  UNION ALL
  SELECT cluster_id, client_instance_id, 'subscribed_names', 0, 1
  FROM unsubscribed_metrics
  WHERE cluster_id IN (SELECT cluster_id FROM subscriptions)
  UNION ALL
  SELECT cluster_id, client_instance_id, 'delta_temporality', 1, CASE WHEN temporality = 'delta' THEN 0 ELSE 1 END
  FROM push_outcomes
  WHERE temporality IS NOT NULL AND outcome <> 'duplicate'
  UNION ALL
  SELECT cluster_id, client_instance_id, 'readable', 1,
    CASE WHEN outcome = 'quarantined' OR quarantined_points > 0 THEN 1 ELSE 0 END
  FROM push_outcomes
  WHERE outcome NOT IN ('duplicate', 'dropped')
  UNION ALL
  SELECT cluster_id, client_instance_id, 'goodbye', 1, CASE WHEN state = 'terminated' THEN 0 ELSE 1 END
  FROM clients
  WHERE state IN ('terminated', 'silent')
),

of_instances AS (
  SELECT cluster_id, client_instance_id, rule, sum(checked) AS checked, sum(broken) AS broken
  FROM told
  GROUP BY cluster_id, client_instance_id, rule
)

SELECT
  c.cluster_id,
  c.library,
  c.library_version,
  c.client_software_name AS software_name,
  c.client_software_version AS software_version,
  i.rule,
  CASE i.rule
    WHEN 'interval' THEN 'Throttling and rate-limiting'
    WHEN 'no_gap' THEN 'Client behavior'
    WHEN 'subscribed_names' THEN 'Client metrics subscription'
    WHEN 'delta_temporality' THEN 'Metric aggregation temporality'
    WHEN 'readable' THEN 'Metrics serialization format'
    WHEN 'goodbye' THEN 'Client termination'
  END AS section,
  CAST(sum(i.checked) AS BIGINT) AS checked,
  CAST(sum(i.broken) AS BIGINT) AS broken,
  CAST(sum(CASE WHEN i.broken > 0 THEN 1 ELSE 0 END) AS BIGINT) AS instances,
  max_by(CASE WHEN i.broken > 0 THEN i.client_instance_id END, i.broken) AS example
FROM of_instances AS i
JOIN clients AS c
  ON coalesce(c.cluster_id, '') = coalesce(i.cluster_id, '') AND c.client_instance_id = i.client_instance_id
GROUP BY
  c.cluster_id, c.library, c.library_version, c.client_software_name, c.client_software_version, i.rule
