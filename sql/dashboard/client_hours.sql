-- What did each instance of a client id measure in an hour? Rows of instance_hours: what the rules of findings compare.
SELECT *
FROM instance_hours
WHERE client_id = :client AND landed_date = CAST(:hour AS DATE) AND window_start = :hour
LIMIT :top
