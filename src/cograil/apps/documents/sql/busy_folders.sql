-- name: busy_folders
-- The number of open documents in each folder.
select folder, count(*) from cograil_documents.documents where tenant_id = %(tenant)s and state is null group by folder
