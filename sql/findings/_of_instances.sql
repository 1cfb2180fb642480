CASE WHEN :condition THEN struct(
        :id AS finding, :severity AS severity,
        CAST(:measure AS DOUBLE) AS measure,
        :evidence AS evidence,
        :advice AS advice
      ) END
