-- name: busy_folders
-- How many documents of each folder are not done.
select folder, count(*) from cograil.documents where tenant_id = %(tenant)s and state is null group by folder
