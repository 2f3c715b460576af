"""Captures: evidence that is ingested once, sealed, and provable to anybody.

A post makes one row, one job and one entry of the audit log, or none of them (`ingest`). The job fetches the
encrypted object, opens it, holds it against what was announced, and signs a manifest (`sealing`). What a
proof is worth is told by `verifying`, which needs neither a database nor a server.
"""
