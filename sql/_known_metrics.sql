-- What is known about each metric that clients push: unit, meaning, level, who has it, what to sum and what never to?
-- One row per metric, from Kafka's and the libraries' docs: not what this lake has, which is view metric_catalog.
-- measure: metrics of one measure count the same, say of a client and of its topics: sum one of them. level: what a
-- point is about, client unless it is a part of one. aggregate: sum (of delta), rate, mean, max, min, last.
SELECT
  split_part(line, '|', 1) AS metric,
  split_part(line, '|', 2) AS unit,
  split_part(line, '|', 3) AS meaning,
  split_part(line, '|', 4) AS aggregate,
  CASE split_part(line, '|', 4) :advice END AS advice,
  split_part(line, '|', 5) AS level,
  nullif(split_part(line, '|', 6), '') AS measure,
  split(split_part(line, '|', 7), ',') AS libraries,
  split_part(line, '|', 8) AS source
FROM VALUES
:rows
AS known(line)
