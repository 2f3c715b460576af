-- name: settle_document
-- Write the ending once: by the last node in the transaction of its report, or by a watcher for a failed job.
update cograil_documents.documents
set state = %(state)s, out_pdf = %(out_pdf)s, message = %(message)s, pages = %(pages)s,
    attempt = %(attempt)s, pdf_invalid = %(pdf_invalid)s, prep_skipped = %(prep_skipped)s,
    ocr_skipped = %(ocr_skipped)s, changed_at = now()
where tenant_id = %(tenant)s and folder = %(folder)s and key = %(key)s and job_id = %(job)s::uuid
  and state is null
returning key, extract(epoch from clock_timestamp() - created_at)::float8 as seconds
