CASE WHEN :condition THEN struct(
        :id AS finding, CAST(:requests AS DOUBLE) AS requests, CAST(:bytes_in AS DOUBLE) AS bytes_in,
        :method AS method, :measured AS measured, :assumed AS assumed,
        :untold AS untold
      ) END
