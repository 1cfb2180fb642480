-- Whose is :whose, and by which alias or rule? :more
-- An alias of the instance id takes precedence over one of the client id, and an alias over the first rule that fits. An
-- entry of the cluster takes precedence over one of any cluster. owned_by: which entry says it. If it ends with `unknown`,
-- the first rule that may fit reads a principal or an address that isn't known: no application then.
WITH latest AS (
  SELECT
    l.*,
    CASE
      WHEN client_address RLIKE '^[0-9]+[.][0-9]+[.][0-9]+[.][0-9]+$' THEN concat(
        lpad(split_part(client_address, '.', 1), 3, '0'), lpad(split_part(client_address, '.', 2), 3, '0'),
        lpad(split_part(client_address, '.', 3), 3, '0'), lpad(split_part(client_address, '.', 4), 3, '0')
      )
      -- Java writes all eight groups of an IPv6 address, and perhaps the interface behind a percent sign.
      WHEN client_address RLIKE '^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}(%.*)?$' THEN concat(
        lpad(split_part(client_address, ':', 1), 4, '0'), lpad(split_part(client_address, ':', 2), 4, '0'),
        lpad(split_part(client_address, ':', 3), 4, '0'), lpad(split_part(client_address, ':', 4), 4, '0'),
        lpad(split_part(client_address, ':', 5), 4, '0'), lpad(split_part(client_address, ':', 6), 4, '0'),
        lpad(split_part(client_address, ':', 7), 4, '0'),
        lpad(split_part(split_part(client_address, ':', 8), '%', 1), 4, '0')
      )
    END AS address_key
  FROM (:subjects
  ) AS l
),

-- fits: NULL if it depends on what isn't known. A client without a group is in none: that is known.
ruled AS (
  SELECT cluster_id, subject, fits, position, application, owner, environment
  FROM (
    SELECT
      f.*,
      row_number() OVER (
        PARTITION BY cluster_id, subject ORDER BY of_cluster DESC, position
      ) AS place
    FROM (
      SELECT
        l.cluster_id,
        l.subject,
        r.position,
        r.application,
        r.owner,
        r.environment,
        CASE WHEN r.cluster_id IS NULL THEN 0 ELSE 1 END AS of_cluster,
        (r.client_id IS NULL OR coalesce(l.client_id, '') RLIKE concat('^(?:', r.client_id, ')$'))
        AND (
          r.group_id IS NULL
          OR coalesce(l.group_id RLIKE concat('^(?:', r.group_id, ')$'), FALSE)
        )
        AND (r.principal IS NULL OR l.principal RLIKE concat('^(?:', r.principal, ')$'))
        AND (
          r.address_first IS NULL
          OR length(l.address_key) = length(r.address_first)
          AND l.address_key BETWEEN r.address_first AND r.address_last
        ) AS fits
      FROM latest AS l
      JOIN application_rules AS r
        ON r.valid_to IS NULL AND coalesce(r.cluster_id, l.cluster_id, '') = coalesce(l.cluster_id, '')
    ) AS f
    WHERE coalesce(fits, TRUE)
  ) AS placed
  WHERE place = 1
),

aliased AS (
  SELECT cluster_id, subject, application, owner, environment, kind
  FROM (
    SELECT
      c.cluster_id,
      c.subject,
      coalesce(i.application, n.application) AS application,
      coalesce(i.owner, n.owner) AS owner,
      coalesce(i.environment, n.environment) AS environment,
      CASE WHEN i.application IS NOT NULL THEN 'alias of the instance' ELSE 'alias of the client id' END AS kind,
      row_number() OVER (
        PARTITION BY c.cluster_id, c.subject
        ORDER BY i.cluster_id DESC NULLS LAST, n.cluster_id DESC NULLS LAST
      ) AS place
    FROM latest AS c
    LEFT JOIN client_aliases AS i
      ON i.client_instance_id = c.client_instance_id AND i.valid_to IS NULL
      AND coalesce(i.cluster_id, c.cluster_id, '') = coalesce(c.cluster_id, '')
    LEFT JOIN client_aliases AS n
      ON n.client_instance_id IS NULL AND n.client_id = c.client_id AND n.valid_to IS NULL
      AND coalesce(n.cluster_id, c.cluster_id, '') = coalesce(c.cluster_id, '')
    WHERE coalesce(i.application, n.application) IS NOT NULL
  ) AS placed
  WHERE place = 1
)

SELECT
  k.* EXCEPT (address_key),
  CASE WHEN a.application IS NOT NULL THEN a.application WHEN r.fits THEN r.application END AS application,
  CASE WHEN a.application IS NOT NULL THEN a.owner WHEN r.fits THEN r.owner END AS owner,
  CASE WHEN a.application IS NOT NULL THEN a.environment WHEN r.fits THEN r.environment END AS environment,
  CASE
    WHEN a.application IS NOT NULL THEN a.kind
    WHEN r.fits THEN concat('rule ', CAST(r.position AS STRING))
    WHEN r.position IS NOT NULL THEN concat('rule ', CAST(r.position AS STRING), ': its principal or address is unknown')
  END AS owned_by
FROM latest AS k
LEFT JOIN aliased AS a
  ON coalesce(a.cluster_id, '') = coalesce(k.cluster_id, '') AND a.subject = k.subject
LEFT JOIN ruled AS r
  ON coalesce(r.cluster_id, '') = coalesce(k.cluster_id, '') AND r.subject = k.subject
