-- name: needed_work_dirs
-- The keys among these whose documents are open, or ended after this time.
select key from cograil_documents.documents
where tenant_id = %(tenant)s and folder = %(folder)s and key = any(%(keys)s::text[])
  and (state is null or changed_at > now() - %(keep)s * interval '1 second')
