"""The status files for desktop programs: state.json, jobs.json, metrics.json, written from the database.

A status file that is lost or edited is written again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from cograil.apps.documents import atomic_files, file_claims
from cograil.apps.documents.core import METRICS_FILE, make_empty_metrics, now_text
from cograil.apps.documents.jobs import Document, count_documents, list_documents
from cograil.apps.documents.layout import FINAL_PDF, RAW_PDF, STATE_FILE, Folder
from cograil.store.database import Database

OVERLAP = timedelta(seconds=60)  # a row may become visible this much later than its timestamp
TIMEOUTS = frozenset({"timeout", "heartbeat_timeout"})
JOBS_FILE = "jobs.json"
MAX_READ = 256 * 1024 * 1024  # of an index that may have been edited
STAGES = {"prep": "PREP", "ocr": "OCR"}


def state_of(document: Document) -> dict[str, Any]:
    """The status of a document: state, stage, attempt and message."""
    if document.state is not None:
        ended = {"state": document.state, "stage": document.state}
        return ended | {"attempt": document.attempt, "message": document.message}
    status = {"state": "DISCOVERED", "stage": "DISCOVERED", "attempt": 0, "message": ""}
    for node_id, word in STAGES.items():
        node = document.nodes.get(node_id)
        if node is None or node["status"] in ("pending", "skipped", "cancelled"):
            break
        status = {"attempt": node["attempt"], **_stage(word, node)}
        if node["status"] != "completed":
            return status
    error = (document.nodes.get("finish") or {}).get("error") or {}  # the PDF is made and cannot be delivered
    return status | ({"message": str(error["message"])} if error.get("message") else {})


def _stage(word: str, node: dict[str, Any]) -> dict[str, Any]:
    error = node.get("error") or {}
    message = str(error.get("message", ""))
    match node["status"]:
        case "running":
            pages = f"{node['current']:g}/{node['total']:g} pages" if node.get("total") else ""
            return {"state": f"{word}_RUNNING", "stage": f"{word}_RUNNING", "message": pages}
        case "completed":
            return {"state": f"{word}_DONE", "stage": f"{word}_DONE", "message": ""}
        case "ready" | "failed" if error:
            kind = "TIMEOUT" if error.get("code") in TIMEOUTS else "ERROR"
            return {"state": f"{word}_{kind}", "stage": f"{word}_RETRY", "message": message}
        case "dispatched":
            return {"state": f"{word}_SUBMITTED", "stage": f"{word}_SUBMITTED", "message": ""}
    before = "DISCOVERED" if word == "PREP" else "PREP_DONE"
    return {"state": before, "stage": before, "message": ""}


def entry_of(document: Document) -> dict[str, Any]:
    """A document in jobs.json, and in lists of the API."""
    status = state_of(document)
    return {
        "jobKey": document.key,
        "state": status["state"],
        "stage": status["stage"],
        "attempt": status["attempt"],
        "inputName": document.name,
        "outPdf": document.out_pdf,
        "updatedAt": written(document.changed_at),
    }


def details_of(document: Document, folder: Folder | None = None) -> dict[str, Any]:
    """A document in its state.json; paths are null without a folder."""
    status = state_of(document)
    file_hash, profile_hash = document.key.split("__")[:2]
    work_dir = None if folder is None else folder.work_dir(document.key)
    word = status["stage"].partition("_")[0]
    return {
        "jobKey": document.key,
        "state": status["state"] if document.state in (None, "DONE") else "ERROR",
        "stage": status["stage"],
        "step": word if word in STAGES.values() else "",
        "attempt": status["attempt"],
        "message": status["message"],
        "profile": document.profile,
        "fileHash": file_hash,
        "profileHash": profile_hash,
        "input": {"name": document.name, "path": _source(document, folder)},
        "rawPdf": None if work_dir is None else str(work_dir / RAW_PDF),
        "finalPdf": None if work_dir is None else str(_final(document, folder, work_dir)),
        "outPdf": document.out_pdf,
        "jobId": document.job_id,
        "userId": document.folder_id.rpartition("/")[2] or None,
        "updatedAt": written(document.changed_at),
    }


def _source(document: Document, folder: Folder | None) -> str | None:
    return None if folder is None else str(folder.source(document.key, document.name))


def _final(document: Document, folder: Folder | None, work_dir: Any) -> Any:
    return work_dir / FINAL_PDF if not document.out_pdf or folder is None else folder.out / document.out_pdf


def indexed(folder: Folder) -> list[dict[str, Any]]:
    """The documents of a folder by its index, last changed first, with the message of their state.json."""
    index = atomic_files.read_json(folder.index / JOBS_FILE, MAX_READ)
    jobs = index.get("jobs") if isinstance(index, dict) else None
    entries = [entry for entry in jobs.values() if isinstance(entry, dict)] if isinstance(jobs, dict) else []
    for entry in entries:
        state = atomic_files.read_json(folder.work / str(entry.get("jobKey")) / STATE_FILE)
        entry["message"] = str(state.get("message") or "") if isinstance(state, dict) else ""
    return sorted(entries, key=lambda entry: str(entry.get("updatedAt")), reverse=True)


def gauges_of(entries: list[dict[str, Any]]) -> dict[str, int]:
    """The numbers of queued documents (including retries) and of running ones."""
    open_states = [entry["state"] for entry in entries if not _is_over(entry["state"])]
    running = sum(state.endswith("_RUNNING") or state == "OCR_DONE" for state in open_states)
    return {"queued": len(open_states) - running, "running": running}


def _is_over(state: str) -> bool:
    return state == "DONE" or state.startswith("ERROR")


def written(moment: datetime) -> str:
    """A time in the format of our files."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class StatusFile:
    """A status file: written when its content is outdated, or when it was edited."""

    def __init__(self, path: Path, passing: str = "") -> None:
        self._path = path
        self._passing = passing  # a field that is ignored in comparisons
        self._version: Any = None
        self._written_stat: tuple[int, ...] = ()

    def update(self, version: Any, content: Callable[[], Any]) -> None:
        """Write the content unless the file has it; the same `version` skips the check. Raises OSError."""
        if version == self._version and self._written_stat == self._stat():
            return
        value = content()
        if self._plain(atomic_files.read_json(self._path, MAX_READ)) != self._plain(value):
            atomic_files.write_json(self._path, value)
        self._version, self._written_stat = version, self._stat()

    def _plain(self, value: Any) -> Any:
        is_object = isinstance(value, dict)
        return (
            {name: field_value for name, field_value in value.items() if name != self._passing}
            if is_object
            else value
        )

    def _stat(self) -> tuple[int, ...]:
        try:
            info = self._path.lstat()
        except OSError:
            return ()
        return info.st_ino, info.st_size, info.st_mtime_ns


class Projector:
    """Keeps the status files of one folder up to date."""

    def __init__(self, folder: Folder, folder_id: str) -> None:
        self._folder = folder
        self._folder_id = folder_id
        self._entries: dict[str, dict[str, Any]] = {}
        self._states: dict[str, StatusFile] = {}  # of open and recently changed documents
        self._jobs = StatusFile(folder.index / JOBS_FILE)
        self._metrics = StatusFile(folder.index / METRICS_FILE, passing="updatedAt")
        self._version = 0  # of the entries
        self._since: datetime | None = None

    async def project(self, db: Database) -> list[Document]:
        """Write changed files; return open and recently changed documents. After an OSError the next call retries."""
        async with db.transaction("documents_project") as tx:
            documents = await list_documents(tx, self._folder_id, since=self._since)
            counts = await count_documents(tx, self._folder_id)
            now = tx.now
        await asyncio.to_thread(self._write, documents, counts)
        self._since = (
            now - OVERLAP
        )  # only after all is written: otherwise the next call must find the same changes
        return documents

    def _write(self, documents: list[Document], counts: dict[str, int]) -> None:
        for document in documents:
            entry = entry_of(document)
            if self._entries.get(document.key) != entry:
                self._entries[document.key] = entry
                self._version += 1
        self._jobs.update(self._version, lambda: {"jobs": self._entries})
        counted = counts | gauges_of(list(self._entries.values()))
        counted |= {"ignored": len(file_claims.ignored(self._folder))}
        self._metrics.update(counted, lambda: make_empty_metrics() | counted | {"updatedAt": now_text()})
        self._write_states(documents)

    def _write_states(self, documents: list[Document]) -> None:
        """Write each state.json; an error in one does not stop the others. Raises the last OSError."""
        keys = {document.key for document in documents}
        self._states = {key: copy for key, copy in self._states.items() if key in keys}
        failure: OSError | None = None
        for document in documents:
            work_dir = self._folder.work_dir(document.key)
            copy = self._states.setdefault(document.key, StatusFile(work_dir / STATE_FILE))
            version = (*state_of(document).values(), document.changed_at)
            try:
                if work_dir.is_dir():
                    copy.update(version, partial(details_of, document, self._folder))
            except OSError as error:
                failure = error
        if failure is not None:
            raise failure
