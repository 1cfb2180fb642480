-- Which bugs of client libraries are known, in which versions? One row per bug and range of versions.
-- affects: telemetry, connections, process (the client crashes), data (records) or security. fixed_version: the first
-- one without it; NULL: none is known. The list isn't complete.
SELECT
  library, bug, affects, summary, first_version, fixed_version, first_number, fixed_number, source,
  CAST(:as_of AS DATE) AS as_of
FROM VALUES
    :rows
  AS t(library, bug, affects, summary, first_version, fixed_version, first_number, fixed_number, source)
