"""Which tests `make test` leaves to `make test-all`.

`make test` is for every change: unit, contract and database tests, and one pass of each app and of the browser.
`make test-all` runs the rest: real processes that are started, killed and upgraded, enumerations of crash points,
generated requests, several container runtimes, real OCR, and pages in every size.
"""

from __future__ import annotations

from pathlib import Path

SLOW_FOLDERS = frozenset({"acceptance"})
SLOW_FILES = frozenset(
    {
        "test_api_concurrency.py",
        "test_api_access_matrix.py",
        "test_api_schemathesis.py",
        "test_app_access_matrix.py",
        "test_container_job_artifacts.py",
        "test_browser_pages.py",
        "test_callback_examples.py",
        "test_capture_crashes.py",
        "test_capture_concurrency.py",
        "test_capture_reconciler.py",
        "test_capture_s3.py",
        "test_cli_schedules.py",
        "test_document_concurrency.py",
        "test_crash_points_listed.py",
        "test_document_crashes.py",
        "test_delivery_crashes.py",
        "test_document_end_to_end.py",
        "test_keyboard.py",
        "test_company_crashes.py",
        "test_company_crash_points.py",
        "test_container_large_files.py",
        "test_company_abandoned_runs.py",
        "test_limits_property.py",
        "test_engine_faults.py",
        "test_network_folders.py",
        "test_picture_formats.py",
        "test_idempotency_property.py",
        "test_pgbouncer.py",
        "test_primitives_concurrency.py",
        "test_primitives_property.py",
        "test_rename_crashes.py",
        "test_container_restarts.py",
        "test_retention_partitions.py",
        "test_container_runtimes.py",
        "test_sandbox.py",
        "test_stage_services.py",
        "test_simulation.py",
        "test_stage_crashes.py",
        "test_container_takeovers.py",
    }
)


def is_slow(path: Path) -> bool:
    """Return whether the tests of this file belong to `make test-all`."""
    return path.name in SLOW_FILES or not SLOW_FOLDERS.isdisjoint(path.parts)
