-- name: count_documents
-- The counters of a folder or of all: endings of its documents, and refused files by reason.
with d as materialized (
  select count(*) filter (where state = 'DONE') as done, count(*) filter (where state <> 'DONE') as error,
         coalesce(sum(pdf_invalid), 0)::bigint as pdf_invalid, count(*) filter (where prep_skipped) as prep_skipped,
         count(*) filter (where ocr_skipped) as ocr_skipped
  from cograil_documents.documents
  where tenant_id = %(tenant)s and (%(folder)s::text is null or folder = %(folder)s::text))
select 'done', done from d union all select 'error', error from d union all select 'pdf_invalid', pdf_invalid from d
union all select 'prep_skipped', prep_skipped from d union all select 'ocr_skipped', ocr_skipped from d
union all select what, sum(count)::bigint from cograil_documents.document_counts
where tenant_id = %(tenant)s and (%(folder)s::text is null or folder = %(folder)s::text) group by what
