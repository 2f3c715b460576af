"""The tick API of the earlier program: a folder and two services, without the engine.

For programs and tests that call it. `cograil documents watch` does the same on the engine, which adds restarts,
fences and limits. The directories are those of DATA_DIR.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cograil.apps.documents import atomic_files, duplicates, file_claims, service_results, staged_files
from cograil.apps.documents.admission import COUNTED_AS
from cograil.apps.documents.core import (
    is_heartbeat_stale,
    make_empty_metrics,
    make_job_key,
    now_text,
    update_metrics,
    write_metrics,
)
from cograil.apps.documents.duplicates import ExistingDocument
from cograil.apps.documents.jobs import ArrivedFile
from cograil.apps.documents.layout import FINAL_PDF, RAW_PDF, Folder
from cograil.apps.documents.ocr import InvalidPdf, validate
from cograil.apps.documents.prep import pages_of
from cograil.apps.documents.settings import DocumentSettings
from cograil.errors import UsageError

DATA_DIR = os.environ.get("COGRAIL_DOCUMENTS__DATA_DIR") or os.environ.get("DATA_DIR") or "/data"
IN_DIR = os.path.join(DATA_DIR, "in")
WORK_DIR = os.path.join(DATA_DIR, "work")
OUT_DIR = os.path.join(DATA_DIR, "out")
ARCHIVE_DIR = os.path.join(DATA_DIR, "archive")
ERROR_DIR = os.path.join(DATA_DIR, "error")
HOLD_DUP_DIR = os.path.join(DATA_DIR, "hold", "duplicates")
REPORTS_DUP_DIR = os.path.join(DATA_DIR, "reports", "duplicates")
OUTSIDE = ("DONE", "ERROR_PREP", "ERROR_OCR")

InFlight = dict[str, dict[str, Any]]
Index = dict[str, Any]
_quiet = file_claims.QuietTracker()
_config: ContextVar[Mapping[str, Any]] = ContextVar("config", default=MappingProxyType({}))  # of this tick


class _Here(Folder):
    """The directories as the module's variables name them now."""

    __slots__ = ()
    arrivals = property(lambda self: Path(IN_DIR))
    work = property(lambda self: _work_dir())
    staging = property(lambda self: _work_dir() / "_staging")
    out = property(lambda self: Path(OUT_DIR))
    archive = property(lambda self: Path(ARCHIVE_DIR))
    error = property(lambda self: Path(ERROR_DIR))
    held = property(lambda self: Path(HOLD_DUP_DIR))
    reports = property(lambda self: Path(REPORTS_DUP_DIR))
    rejections = property(lambda self: Path(REPORTS_DUP_DIR).parent / "rejected")
    index = property(lambda self: Path(_config.get().get("index_dir") or Path(DATA_DIR, "index")))

    def work_dir(self, key: str) -> Path:
        """The directory of one job; the caller of the tick chooses the keys. Raises UsageError."""
        if "/" in key or key in ("", ".", ".."):
            raise UsageError(f"{key[:200]!r} is not the key of a document")
        return _work_dir() / key


def _work_dir() -> Path:
    """The work directory of this tick; outside of one, WORK_DIR."""
    return Path(_config.get().get("work_dir") or WORK_DIR)


def _here() -> Folder:
    return _Here(Path(DATA_DIR))


def write_duplicate_report(
    job_key: str, incoming_path: str, existing: Mapping[str, Any], profile: Mapping[str, Any]
) -> None:
    """Hold this file as a duplicate, and report it."""
    duplicates.hold(_here(), job_key, Path(incoming_path), os.path.basename(incoming_path), existing, profile)


def check_duplicate_decisions(index: Index, index_path: str) -> None:
    """Carry out decisions on held files. One that cannot be carried out stays, and its status says why."""
    here = _here()
    for key in duplicates.held_keys(here):
        entry = index.get("jobs", {}).get(key)
        if duplicates.is_decided(here, key):
            duplicates.apply_decision(here, key, _existing(entry))
    atomic_files.write_json(Path(index_path), index)


def _existing(entry: Mapping[str, Any] | None) -> ExistingDocument | None:
    if entry is None:
        return None
    pdf = entry.get("outPdf")
    return ExistingDocument(entry, entry.get("state") not in OUTSIDE, Path(OUT_DIR, pdf) if pdf else None)


def check_stale_jobs(in_flight: InFlight, timeout_s: float) -> None:
    """Retry stages with a stale heartbeat; one without any heartbeat after twice the timeout."""
    for job_key, meta in in_flight.items():
        stage = str(meta.get("stage", ""))
        if stage not in ("PREP_RUNNING", "OCR_RUNNING"):
            continue
        word = stage.partition("_")[0]
        path = _heartbeat_of(job_key, meta, word.lower())
        ran = time.time() - meta["startedAt"] if "startedAt" in meta else None
        is_missing = ran is not None and ran > 2 * timeout_s and not path.exists()
        is_of_this_try = ran is None or ran > timeout_s  # before that it may be what an earlier one left
        if (is_of_this_try and is_heartbeat_stale(path, timeout_s)) or is_missing:
            update_state(
                job_key, {"state": f"{word}_TIMEOUT", "message": f"heartbeat stale after {timeout_s}s"}
            )
            meta["stage"] = f"{word}_RETRY"


def _heartbeat_of(job_key: str, meta: Mapping[str, Any], stage: str) -> Path:
    """The heartbeat file of this stage: in the service's own directory if that has one."""
    work_dir, name = _work_dir() / job_key, f"{stage}.heartbeat"
    own = work_dir / str(meta.get("jobId") or "") / name
    return own if own.exists() else work_dir / name


def update_state(job_key: str, change: Mapping[str, Any]) -> None:
    """Merge this change into the state.json of the job."""
    path = _here().work / job_key / "state.json"
    before = atomic_files.read_json(path) or {}
    atomic_files.write_json(path, before | dict(change) | {"jobKey": job_key, "updatedAt": now_text()})


def process_tick(
    in_flight: InFlight, index: Index, index_path: str, profile: dict[str, Any], config: dict[str, Any]
) -> None:
    """Run one tick: decisions, discovery, PREP, OCR, heartbeats, metrics. All state is passed in."""
    token = _config.set(config)
    try:
        _tick(in_flight, index, index_path, profile, config)
    finally:
        _config.reset(token)


def _tick(
    in_flight: InFlight, index: Index, index_path: str, profile: dict[str, Any], config: dict[str, Any]
) -> None:
    metrics = config.setdefault("metrics", make_empty_metrics())
    index.setdefault("jobs", {})
    _here().make()
    check_duplicate_decisions(index, index_path)
    if len(in_flight) < config["max_jobs_in_flight"]:
        _discover(in_flight, index, profile, metrics)
    for stage in ("prep", "ocr"):
        _schedule(in_flight, index, profile, config, stage)
        _poll(in_flight, index, config, stage)
    check_stale_jobs(in_flight, config["job_timeout_s"])
    atomic_files.write_json(Path(index_path), index)
    stages = [str(meta["stage"]) for meta in in_flight.values()]
    metrics["running"] = sum(stage.endswith("_RUNNING") for stage in stages)
    metrics["queued"] = len(stages) - metrics["running"]
    write_metrics(metrics, config["index_dir"])


def _discover(in_flight: InFlight, index: Index, profile: dict[str, Any], metrics: dict[str, Any]) -> None:
    """Take one new file; refused and held files do not count."""
    here, jobs = _here(), index["jobs"]
    while True:
        if not file_claims.waiting(here) and not staged_files.take_arrivals(here, _quiet, 1):
            return
        batch = staged_files.look_at_staged(here, "", profile, DocumentSettings(), 1)
        with batch.locks:
            moved = staged_files.bring_refused(here, batch.refused)
            for refused in moved:
                update_metrics(metrics, COUNTED_AS[refused.refusal.reason])
            if not batch.arrived and not moved:
                return
            for arrived in batch.arrived:
                if arrived.key in jobs:
                    staged_files.hold_duplicate(here, arrived, jobs[arrived.key])
                else:
                    staged_files.place_inputs(here, [arrived])
                    _begin(in_flight, jobs, arrived, profile)
                    return


def _begin(in_flight: InFlight, jobs: dict[str, Any], arrived: ArrivedFile, profile: dict[str, Any]) -> None:
    path = str(_here().source(arrived.key, arrived.name))
    profile_hash, _ = make_job_key(arrived.key[:64], profile)
    update_state(
        arrived.key,
        {
            "state": "DISCOVERED",
            "fileHash": arrived.key[:64],
            "profileHash": profile_hash,
            "profile": profile,
            "input": {"name": arrived.name, "path": path},
        },
    )
    in_flight[arrived.key] = {
        "stage": "DISCOVERED",
        "inputName": arrived.name,
        "inputPath": path,
        "attemptPrep": 0,
        "attemptOcr": 0,
    }
    _note(jobs, arrived.key, state="DISCOVERED", inputName=arrived.name, outPdf=None)


def _note(jobs: dict[str, Any], key: str, **fields: Any) -> None:
    jobs[key] = {"jobKey": key, **jobs.get(key, {}), **fields, "updatedAt": now_text()}


def _schedule(
    in_flight: InFlight, index: Index, profile: dict[str, Any], config: dict[str, Any], stage: str
) -> None:
    """Submit due jobs to this stage up to its concurrency; jobs without attempts left fail."""
    word, before = stage.upper(), "DISCOVERED" if stage == "prep" else "PREP_DONE"
    attempts = f"attempt{stage.capitalize()}"
    running = sum(meta["stage"] == f"{word}_RUNNING" for meta in in_flight.values())
    for key in [key for key, meta in in_flight.items() if meta["stage"] in (before, f"{word}_RETRY")]:
        meta = in_flight[key]
        meta.setdefault(attempts, 0)
        if meta[attempts] >= config[f"max_attempts_{stage}"]:
            _give_up(in_flight, index, config, key, word)
        elif running < config[f"{stage}_concurrency"] and _submit(
            key, meta, profile, config, stage, attempts
        ):
            running += 1


def _submit(
    key: str, meta: dict[str, Any], profile: dict[str, Any], config: dict[str, Any], stage: str, attempts: str
) -> bool:
    """Submit the job to the service; a service that is down costs no attempt."""
    work_dir, ocr_profile = _work_dir() / key, profile["ocr"]
    job_id = f"{key}.{meta[attempts] + 1}"
    order: dict[str, Any] = {"jobId": job_id, "workDir": str(work_dir)}
    if stage == "prep":
        order["inputPath"] = meta["inputPath"]
    else:
        names = ("lang", "rotatePages", "deskew", "optimize", "options")
        order |= {"rawPdfPath": str(work_dir / RAW_PDF)} | {
            name: ocr_profile[name] for name in names if name in ocr_profile
        }
    service_results.remove_result(work_dir, stage)
    status, _ = _ask(config[f"{stage}_url"], "POST", f"/jobs/{stage}", order)
    if status != 202:
        return False
    meta |= {
        attempts: meta[attempts] + 1,
        "jobId": job_id,
        "stage": f"{stage.upper()}_RUNNING",
        "startedAt": time.time(),
    }
    update_state(key, {"state": f"{stage.upper()}_RUNNING", "step": stage.upper(), "attempt": meta[attempts]})
    return True


def _ask(url: str, method: str, target: str, body: Any = None) -> tuple[int, Any]:
    """The response; (0, None) when the service is down."""
    from cograil.apps.documents.service_client import ServiceDown, ask  # noqa: PLC0415

    with suppress(ServiceDown):
        return asyncio.run(ask(url, method, target, body))
    return 0, None


def _give_up(in_flight: InFlight, index: Index, config: dict[str, Any], key: str, word: str) -> None:
    update_state(key, {"state": "ERROR", "message": "max attempts reached"})
    _note(index["jobs"], key, state=f"ERROR_{word}")
    source, name = _input_of(in_flight[key])
    if source.exists():
        atomic_files.move_to_free(source, _here().error / name, "error")
    update_metrics(config["metrics"], "error")
    del in_flight[key]


def _input_of(meta: Mapping[str, Any]) -> tuple[Path, str]:
    """The path of a job's input, and its original name."""
    source = Path(meta["inputPath"])
    return source, str(meta.get("inputName") or source.name)


def _poll(in_flight: InFlight, index: Index, config: dict[str, Any], stage: str) -> None:
    word = stage.upper()
    for key in [key for key, meta in in_flight.items() if meta["stage"] == f"{word}_RUNNING"]:
        meta = in_flight[key]
        status, record = _ask(config[f"{stage}_url"], "GET", f"/jobs/{meta['jobId']}")
        if status == 404 or (status == 200 and record["state"] == "ERROR"):
            message = "the service lost it" if status == 404 else str(record.get("message", ""))
            service_results.discard(_work_dir() / key, meta["jobId"], stage)
            update_state(key, {"state": f"{word}_ERROR", "message": message})
            meta["stage"] = f"{word}_RETRY"
        elif status == 200 and record["state"] == "DONE":
            try:
                service_results.collect(_work_dir() / key, meta["jobId"], stage, record)
            except service_results.ForeignArtifact as error:
                update_state(key, {"state": f"{word}_ERROR", "message": str(error)})
                meta["stage"] = f"{word}_RETRY"
                continue
            meta["stage"] = f"{word}_DONE"
            update_state(key, {"state": f"{word}_DONE", "message": ""})
            if stage == "ocr":
                _finish(in_flight, index, config, key)


def _finish(in_flight: InFlight, index: Index, config: dict[str, Any], key: str) -> None:
    """Move the PDF to `out` and the input to `archive` if the PDF is valid; else retry OCR."""
    here, meta, work_dir = _here(), in_flight[key], _work_dir() / key
    try:
        min_bytes = DocumentSettings().min_pdf_size_bytes
        validate(
            work_dir / FINAL_PDF,
            int(config.get("min_pdf_size_bytes", min_bytes)),
            pages_of(work_dir / RAW_PDF),
        )
    except InvalidPdf as error:
        update_state(key, {"state": "OCR_ERROR", "message": f"pdf_invalid: {error}"})
        update_metrics(config["metrics"], "pdf_invalid")
        meta["stage"] = "OCR_RETRY"
        return
    source, name = _input_of(meta)
    pdf = here.pdf(name, key)
    try:
        atomic_files.finish_move(work_dir / FINAL_PDF, pdf, "out")
    except FileExistsError:  # from a run that the index does not have
        pdf = atomic_files.move_to_free(work_dir / FINAL_PDF, pdf, "out")
    atomic_files.move_to_free(source, here.archive / name, "archive")
    update_state(key, {"state": "DONE", "finalPdf": str(pdf)})
    _note(index["jobs"], key, state="DONE", outPdf=pdf.name)
    update_metrics(config["metrics"], "done")
    del in_flight[key]
