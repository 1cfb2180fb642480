-- Whose is each client instance?
SELECT client_instance_id, application, owner
FROM clients
WHERE application IS NOT NULL OR owner IS NOT NULL
LIMIT :top
