"""Captures: evidence that is ingested once, sealed, and verifiable by anyone.

A post creates one row, one job and one entry of the audit log, or none of them (`ingest`). The job fetches the
encrypted object, decrypts it, compares it with the announced values, and signs a manifest (`sealer`).
`proof_verifier` checks a proof without a database or a server; `integrity_check` checks the whole database.
"""
