-- name: identify_database
-- Which database of which cluster this is: equal for two sessions only when they can commit together.
select (select system_identifier::text from pg_control_system()),
       (select oid::bigint from pg_database where datname = current_database()), pg_is_in_recovery()
