"""What programs on the desktop read: state.json, jobs.json, metrics.json, rewritten from the engine's state.

They are copies: whoever loses or changes one gets it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from cograil.apps.documents import atomic_files, file_claiming
from cograil.apps.documents.core import METRICS_FILE, make_empty_metrics, now_text
from cograil.apps.documents.jobs import Document, count_documents, list_documents
from cograil.apps.documents.layout import FINAL_PDF, RAW_PDF, STATE_FILE, Folder
from cograil.store.database import Database

OVERLAP = timedelta(seconds=60)  # a commit may come this much later than its time
TIMEOUTS = frozenset({"timeout", "heartbeat_timeout"})
JOBS_FILE = "jobs.json"
MAX_READ = 256 * 1024 * 1024  # of an index, to see whether somebody else wrote it
STAGES = {"prep": "PREP", "ocr": "OCR"}


def state_of(document: Document) -> dict[str, Any]:
    """Where a document is: its state, the stage it is in, the attempt, and what there is to say."""
    if document.state is not None:
        ended = {"state": document.state, "stage": document.state}
        return ended | {"attempt": document.attempt, "message": document.message}
    told = {"state": "DISCOVERED", "stage": "DISCOVERED", "attempt": 0, "message": ""}
    for node_id, word in STAGES.items():
        node = document.nodes.get(node_id)
        if node is None or node["status"] in ("pending", "skipped", "cancelled"):
            break
        told = {"attempt": node["attempt"], **_stage(word, node)}
        if node["status"] != "completed":
            return told
    error = (document.nodes.get("finish") or {}).get("error") or {}  # it is made, and cannot be brought out
    return told | ({"message": str(error["message"])} if error.get("message") else {})


def _stage(word: str, node: dict[str, Any]) -> dict[str, Any]:
    error = node.get("error") or {}
    said = str(error.get("message", ""))
    match node["status"]:
        case "running":
            pages = f"{node['current']:g}/{node['total']:g} pages" if node.get("total") else ""
            return {"state": f"{word}_RUNNING", "stage": f"{word}_RUNNING", "message": pages}
        case "completed":
            return {"state": f"{word}_DONE", "stage": f"{word}_DONE", "message": ""}
        case "ready" | "failed" if error:
            kind = "TIMEOUT" if error.get("code") in TIMEOUTS else "ERROR"
            return {"state": f"{word}_{kind}", "stage": f"{word}_RETRY", "message": said}
        case "dispatched":
            return {"state": f"{word}_SUBMITTED", "stage": f"{word}_SUBMITTED", "message": ""}
    before = "DISCOVERED" if word == "PREP" else "PREP_DONE"
    return {"state": before, "stage": before, "message": ""}


def entry_of(document: Document) -> dict[str, Any]:
    """A document in jobs.json, and in lists of the API."""
    told = state_of(document)
    return {
        "jobKey": document.key,
        "state": told["state"],
        "stage": told["stage"],
        "attempt": told["attempt"],
        "inputName": document.name,
        "outPdf": document.out_pdf,
        "updatedAt": written(document.changed_at),
    }


def details_of(document: Document, folder: Folder | None = None) -> dict[str, Any]:
    """A document in its state.json; paths are told where the folder is known."""
    told = state_of(document)
    file_hash, profile_hash = document.key.split("__")[:2]
    room = None if folder is None else folder.room(document.key)
    word = told["stage"].partition("_")[0]
    return {
        "jobKey": document.key,
        "state": told["state"] if document.state in (None, "DONE") else "ERROR",
        "stage": told["stage"],
        "step": word if word in STAGES.values() else "",
        "attempt": told["attempt"],
        "message": told["message"],
        "profile": document.profile,
        "fileHash": file_hash,
        "profileHash": profile_hash,
        "input": {"name": document.name, "path": _source(document, folder)},
        "rawPdf": None if room is None else str(room / RAW_PDF),
        "finalPdf": None if room is None else str(_final(document, folder, room)),
        "outPdf": document.out_pdf,
        "jobId": document.job_id,
        "userId": document.place.rpartition("/")[2] or None,
        "updatedAt": written(document.changed_at),
    }


def _source(document: Document, folder: Folder | None) -> str | None:
    return None if folder is None else str(folder.source(document.key, document.name))


def _final(document: Document, folder: Folder | None, room: Any) -> Any:
    return room / FINAL_PDF if not document.out_pdf or folder is None else folder.out / document.out_pdf


def indexed(folder: Folder) -> list[dict[str, Any]]:
    """The documents of a folder by its index, last changed first, with the message of their state.json."""
    index = atomic_files.read_json(folder.index / JOBS_FILE, MAX_READ)
    jobs = index.get("jobs") if isinstance(index, dict) else None
    found = [one for one in jobs.values() if isinstance(one, dict)] if isinstance(jobs, dict) else []
    for one in found:
        state = atomic_files.read_json(folder.work / str(one.get("jobKey")) / STATE_FILE)
        one["message"] = str(state.get("message") or "") if isinstance(state, dict) else ""
    return sorted(found, key=lambda one: str(one.get("updatedAt")), reverse=True)


def gauges_of(entries: list[dict[str, Any]]) -> dict[str, int]:
    """How many of these wait, also for another try, and how many are worked on."""
    open_ones = [entry["state"] for entry in entries if not _is_over(entry["state"])]
    running = sum(state.endswith("_RUNNING") or state == "OCR_DONE" for state in open_ones)
    return {"queued": len(open_ones) - running, "running": running}


def _is_over(state: str) -> bool:
    return state == "DONE" or state.startswith("ERROR")


def written(moment: datetime) -> str:
    """A moment as it stands in our files."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Copy:
    """One of these files: written when it should say something else, or when somebody else wrote to it."""

    def __init__(self, path: Path, passing: str = "") -> None:
        self._path = path
        self._passing = passing  # a field that changes by itself
        self._told: Any = None
        self._seen: tuple[int, ...] = ()

    def tell(self, told: Any, content: Callable[[], Any]) -> None:
        """Have it say this; `told` is what decides whether it does so already. Raises OSError."""
        if told == self._told and self._seen == self._stat():
            return
        value = content()
        if self._plain(atomic_files.read_json(self._path, MAX_READ)) != self._plain(value):
            atomic_files.write_json(self._path, value)
        self._told, self._seen = told, self._stat()

    def _plain(self, value: Any) -> Any:
        is_object = isinstance(value, dict)
        return {name: one for name, one in value.items() if name != self._passing} if is_object else value

    def _stat(self) -> tuple[int, ...]:
        try:
            found = self._path.lstat()
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns


class Projector:
    """The files of one folder, kept up to date."""

    def __init__(self, folder: Folder, place: str) -> None:
        self._folder = folder
        self._place = place
        self._entries: dict[str, dict[str, Any]] = {}
        self._states: dict[str, Copy] = {}  # of those that are not over, and of those that were just now
        self._jobs = Copy(folder.index / JOBS_FILE)
        self._metrics = Copy(folder.index / METRICS_FILE, passing="updatedAt")
        self._version = 0  # of the entries
        self._since: datetime | None = None

    async def project(self, db: Database) -> list[Document]:
        """Write what has changed; those that run or changed lately. Raises OSError, and then tries again."""
        async with db.transaction("documents_project") as tx:
            found = await list_documents(tx, self._place, since=self._since)
            counts = await count_documents(tx, self._place)
            now = tx.now
        await asyncio.to_thread(self._write, found, counts)
        self._since = now - OVERLAP  # not before all is written: what changed until then must be found again
        return found

    def _write(self, found: list[Document], counts: dict[str, int]) -> None:
        for document in found:
            entry = entry_of(document)
            if self._entries.get(document.key) != entry:
                self._entries[document.key] = entry
                self._version += 1
        self._jobs.tell(self._version, lambda: {"jobs": self._entries})
        counted = counts | gauges_of(list(self._entries.values()))
        counted |= {"ignored": len(file_claiming.ignored(self._folder))}
        self._metrics.tell(counted, lambda: make_empty_metrics() | counted | {"updatedAt": now_text()})
        self._write_states(found)

    def _write_states(self, found: list[Document]) -> None:
        """Each by itself: what is wrong in one room is not wrong in the others. Raises the last OSError."""
        keys = {document.key for document in found}
        self._states = {key: copy for key, copy in self._states.items() if key in keys}
        trouble: OSError | None = None
        for document in found:
            room = self._folder.room(document.key)
            copy = self._states.setdefault(document.key, Copy(room / STATE_FILE))
            told = (*state_of(document).values(), document.changed_at)
            try:
                if room.is_dir():
                    copy.tell(told, partial(details_of, document, self._folder))
            except OSError as error:
                trouble = error
        if trouble is not None:
            raise trouble
