"""Documents: drop a comic or a scan in a folder, get a searchable PDF.

    layout, folder_id            the directories of a folder, its id, and the lock of its database
    atomic_files, safe_rename, locks    atomic writes, moves that never overwrite, file locks
    core                         document identity, heartbeat age and counters
    file_claims, admission, staged_files    from `in` to an admitted or refused file
    archive_pages, prep, ocr, stage_heartbeat, stage_log    one document on its way to a PDF
    workflow, handlers, jobs     the workflow, its handlers, and a document with its job in one transaction
    finalize, cleanup            delivery of PDFs and inputs; removal of old work directories
    duplicates                   files whose key exists are held until an operator decides
    status_files                 state.json, jobs.json and metrics.json, rewritten from the database
    watcher                      runs all of this in passes over the folders
    services, service_client, service_results    PREP and OCR over HTTP
    one_shot                     `cograil documents convert`
    folder                       the tick API of the earlier program, without the engine

Importing starts nothing.
"""
