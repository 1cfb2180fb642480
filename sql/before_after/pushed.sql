-- How many instances of an application pushed before and after a moment, how often, and how many pushes are missing?
-- lost: intervals before a push that no push told of.
-- In DuckDB's dialect.
SELECT o.landed_at >= :at AS is_after, count(DISTINCT o.client_instance_id) AS instances, count(*) AS pushes,
       count(o.lost_start) AS lost
FROM push_outcomes AS o SEMI JOIN (FROM clients WHERE application = :application) AS c
  ON c.client_instance_id = o.client_instance_id AND c.cluster_id IS NOT DISTINCT FROM o.cluster_id
WHERE o.landed_at >= :start AND o.landed_at < :stop AND o.landed_date >= :day
GROUP BY 1
