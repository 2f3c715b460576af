-- name: needed_rooms
-- Of these keys, those whose documents are not done, or were done after this moment.
select key from cograil.documents
where tenant_id = %(tenant)s and folder = %(folder)s and key = any(%(keys)s::text[])
  and (state is null or changed_at > now() - %(keep)s * interval '1 second')
