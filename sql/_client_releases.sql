-- Which minor releases of client libraries are no longer supported, and since when? One row per minor release.
-- ended_by: the release that ended its support. end_of_life: when that was; NULL: it isn't known to the day.
SELECT
  library, minor_release, ended_by, CAST(end_of_life AS DATE) AS end_of_life, source, CAST(:as_of AS DATE) AS as_of
FROM VALUES
    :rows
  AS t(library, minor_release, ended_by, end_of_life, source)
