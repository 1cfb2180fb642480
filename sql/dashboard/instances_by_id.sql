-- What is known of these client instances? Rows of `instances`, those with the latest pushes first.
SELECT * FROM chosen WHERE client_instance_id IN (SELECT explode(:ids)) ORDER BY last_push DESC, client_instance_id
