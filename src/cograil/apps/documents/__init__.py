"""Documents: drop a comic or a scan in a folder, get a searchable PDF.

    core        identity and metrics: pure functions, and two small files
    files       moves that never overwrite, writes that are whole or not there
    layout      where everything is below the data directory, for each user
    arrival     which files have arrived, and taking them
    admission   what may come in, and as what
    unpacking, rar_sums, prep, ocr, pulsing, stagelog    one document on its way to a PDF
    handlers    the stages as nodes of the engine; `workflow` is the workflow
    endings     where the files of a document are in the end
    jobs        a document and its job, in one transaction
    watcher     arrival, admission, duplicates and projections, again and again
    duplicates  what came twice is held until somebody decides
    projecting  state.json, jobs.json and metrics.json, rewritten from the state of the engine
    services    PREP and OCR over HTTP; `remote` calls them
    folder      the tick of the original, on files and these services alone

Importing starts nothing.
"""
