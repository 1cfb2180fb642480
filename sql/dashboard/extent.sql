-- From when to when does the lake have pushes?
SELECT min(landed_at) AS first, max(landed_at) AS last, count(*) AS pushes FROM pushes
