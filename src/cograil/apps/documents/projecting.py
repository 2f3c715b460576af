"""What programs on the desktop read: state.json, jobs.json, metrics.json, rewritten from the engine's state.

They are copies: whoever loses or changes one gets it back.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cograil.apps.documents import files
from cograil.apps.documents.core import make_empty_metrics, write_metrics
from cograil.apps.documents.jobs import Document, count_documents, list_documents
from cograil.apps.documents.layout import FINAL_PDF, RAW_PDF, STATE_FILE, Folder
from cograil.store.database import Database

OVERLAP = timedelta(seconds=60)  # a commit may come this much later than its time
TIMEOUTS = frozenset({"timeout", "heartbeat_timeout"})
JOBS_FILE = "jobs.json"
WAITS = frozenset({"DISCOVERED", "PREP_SUBMITTED", "PREP_DONE", "OCR_SUBMITTED"})
STAGES = {"prep": "PREP", "ocr": "OCR"}


def state_of(document: Document) -> dict[str, Any]:
    """Where a document is: its state, the stage it is in, the attempt, and what there is to say."""
    if document.state is not None:
        return {"state": document.state, "stage": document.state, "attempt": 0, "message": document.message}
    told = {"state": "DISCOVERED", "stage": "DISCOVERED", "attempt": 0, "message": ""}
    for node_id, word in STAGES.items():
        node = document.nodes.get(node_id)
        if node is None or node["status"] in ("pending", "skipped", "cancelled"):
            break
        told = {"attempt": node["attempt"], **_stage(word, node)}
        if node["status"] != "completed":
            break
    return told


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


def gauges_of(entries: list[dict[str, Any]]) -> dict[str, int]:
    """How many of these wait, and how many are worked on."""
    states = [entry["state"] for entry in entries]
    ended = sum(state == "DONE" or state.startswith("ERROR") for state in states)
    queued = sum(state in WAITS for state in states)
    return {"queued": queued, "running": len(states) - ended - queued}


def written(moment: datetime) -> str:
    """A moment as it stands in our files."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Projector:
    """The files of one folder, kept up to date."""

    def __init__(self, folder: Folder, place: str) -> None:
        self._folder = folder
        self._place = place
        self._entries: dict[str, dict[str, Any]] = {}
        self._told: dict[str, tuple[Any, ...]] = {}  # what each state.json says
        self._since: datetime | None = None
        self._counts: dict[str, int] = {}

    async def project(self, db: Database) -> list[Document]:
        """Write what has changed; those that run or changed lately."""
        async with db.transaction("documents_project") as tx:
            found = await list_documents(tx, self._place, since=self._since)
            counts = await count_documents(tx, self._place)
            self._since = tx.now - OVERLAP
        self._write(found, counts)
        return found

    def _write(self, found: list[Document], counts: dict[str, int]) -> None:
        is_new = not (self._folder.index / JOBS_FILE).exists()
        for document in found:
            self._write_state(document)
            entry = entry_of(document)
            if self._entries.get(document.key) != entry:
                self._entries[document.key] = entry
                is_new = True
        if is_new:
            files.write_json(self._folder.index / JOBS_FILE, {"jobs": self._entries})
        gauges = gauges_of(list(self._entries.values()))
        if is_new or counts | gauges != self._counts:
            self._counts = counts | gauges
            write_metrics(make_empty_metrics() | self._counts, self._folder.index)

    def _write_state(self, document: Document) -> None:
        room = self._folder.room(document.key)
        told = (*state_of(document).values(), document.changed_at)
        if self._told.get(document.key) != told and room.is_dir():
            files.write_json(room / STATE_FILE, details_of(document, self._folder))
            self._told[document.key] = told
