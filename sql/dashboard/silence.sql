-- How many client instances terminated, and how many are silent? One row. Silent: without a terminating push, and with
-- none for three push intervals and a minute before the end.
SELECT
  count(*) AS instances,
  count(CASE WHEN terminated THEN 1 END) AS terminated,
  count(
    CASE
      WHEN NOT terminated AND unix_micros(CAST(:stop AS TIMESTAMP)) - unix_micros(last_push)
        > greatest(60000000, 3000 * coalesce(push_interval_ms, 0)) THEN 1
    END
  ) AS silent
FROM chosen
