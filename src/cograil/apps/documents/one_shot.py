"""Convert files once: a temporary folder is watched until all are done."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cograil.apps.documents import admission, atomic_files
from cograil.apps.documents.admission import Kind
from cograil.apps.documents.file_claims import locked
from cograil.apps.documents.folder_id import folder_id_of
from cograil.apps.documents.jobs import Document, list_documents
from cograil.apps.documents.layout import Folder
from cograil.apps.documents.status_files import state_of
from cograil.store.database import Database

LOOK_SECONDS = 0.2
CONVERSION_PREFIX = ".cograil-convert-"
YOUNG_SECONDS = 60.0  # a directory that was just created may not be locked yet
ENDING_OF: dict[Kind | None, str] = {Kind.ARCHIVE: ".cbz", Kind.PDF: ".pdf", Kind.IMAGE: ".png"}
DIGITS = 6
MAX_ALIAS = 200


@dataclass(slots=True)
class Item:
    """A file to convert, and its progress."""

    source: Path
    number: int
    ending: str = ""  # a supported suffix, if the name has none
    stage: str = "waiting"
    done: int = 0
    total: int = 0
    pdf: Path | None = None
    error: str = ""

    @property
    def is_over(self) -> bool:
        return self.pdf is not None or bool(self.error)

    @property
    def alias(self) -> str:
        """Its name in the folder: unique, and with a supported suffix."""
        name = f"{self.number:0{DIGITS}}-{atomic_files.cleaned(self.source.name)}{self.ending}"
        return atomic_files.fitted_name(name, MAX_ALIAS)


def remove_abandoned_dirs(target: Path) -> None:
    """Remove the temporary directories of conversions that died: nobody locks them any more."""
    for conversion_dir in target.glob(f"{CONVERSION_PREFIX}*"):
        with locked(conversion_dir) as is_mine:
            if is_mine and time.time() - conversion_dir.stat().st_mtime > YOUNG_SECONDS:
                atomic_files.remove(conversion_dir)


@dataclass(slots=True)
class Conversion:
    """The conversion of some files to a directory."""

    folder: Folder
    target: Path
    items: list[Item]
    max_mb: int
    _firsts: dict[str, Item] = field(default_factory=dict)  # by hash: the same bytes are converted once
    _twins: dict[int, Item] = field(default_factory=dict)  # by number: the first item with the same bytes

    def bring_in(self) -> None:
        """Copy each acceptable file into the folder; the originals stay."""
        self.folder.make()
        for item in self.items:
            try:
                self._bring(item)
            except OSError as error:  # of this file, or of the disk
                item.error = f"it cannot be read or copied: {error.strerror or error} [unreadable]"
                atomic_files.remove(self.folder.arrivals / item.alias)
            item.stage = "refused" if item.error else item.stage

    def _bring(self, item: Item) -> None:
        if not self._is_taken(item):
            return
        first = self._firsts.setdefault(atomic_files.hash_of(item.source), item)
        if first is not item:
            self._twins[item.number] = first
            return
        source, target = item.source.resolve(), self.folder.arrivals / item.alias
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            atomic_files.copy_whole(source, target)

    def _is_taken(self, item: Item) -> bool:
        """Whether a watcher would accept it under its alias; sets `item.error` if not."""
        source = item.source.resolve()
        if not (source.is_file() or source.is_dir()):
            item.error = "it is neither a file nor a directory [not_a_regular_file]"
        elif refusal := admission.refusal_of(source, max_mb=self.max_mb, name=item.source.name):
            item.error = f"{refusal.message} [{refusal.reason}]"
        elif not source.is_dir() and item.source.suffix.lower() not in admission.ENDINGS:
            item.ending = ENDING_OF.get(admission.kind_of(source), "")
        return not item.error

    async def follow(self, db: Database, show: Callable[[list[Item]], None]) -> None:
        """Poll until all items are over, calling `show` after each look."""
        folder_id = folder_id_of(self.folder)
        while not all(item.is_over for item in self.items):
            async with db.transaction("documents_convert") as tx:
                documents = await list_documents(tx, folder_id)
            await asyncio.to_thread(self._note, {document.name: document for document in documents})
            show(self.items)
            await asyncio.sleep(LOOK_SECONDS)

    def _note(self, documents: dict[str, Document]) -> None:
        for item in self.items:
            if item.is_over:
                continue
            document = documents.get(item.alias)
            if first := self._twins.get(item.number):
                self._note_twin(item, first)
            elif document is not None:
                self._note_document(item, document)
            else:
                self._note_refusal(item)

    def _note_document(self, item: Item, document: Document) -> None:
        status = state_of(document)
        node = document.nodes.get("ocr") or {}
        item.stage = status["state"].lower()
        item.done, item.total = int(node.get("current") or 0), int(node.get("total") or 0)
        if document.state == "DONE" and document.out_pdf:
            item.done = item.total = document.pages or 0
            pdf = self.folder.out / document.out_pdf
            item.pdf = self._deliver(pdf, item)
            with suppress(FileNotFoundError):
                self._deliver_text(pdf.with_suffix(".txt"), item.pdf)
        elif document.state is not None:
            item.error = self._readable(document.message, item, document.key)

    def _readable(self, message: str, item: Item, key: str) -> str:
        """The message with the name of the file instead of its path in the temporary folder."""
        for path in (self.folder.source(key, item.alias), self.folder.work_dir(key), self.folder.base):
            message = message.replace(f"{path}/", "").replace(str(path), item.source.name)
        return message.replace(item.alias, item.source.name)

    def _deliver(self, pdf: Path, item: Item) -> Path:
        return atomic_files.move_to_free(
            pdf, self.target / f"{item.source.stem or item.source.name}.pdf", "deliver"
        )

    def _deliver_text(self, text: Path, pdf: Path) -> None:
        if text.exists():
            atomic_files.move_to_free(text, pdf.with_suffix(".txt"), "deliver")

    def _note_refusal(self, item: Item) -> None:
        for path in self.folder.rejections.glob("*.json"):
            rejection = atomic_files.read_json(path) or {}
            if rejection.get("fileName") == item.alias:
                item.error = f"{rejection['message']} [{rejection['reason']}]"

    def _note_twin(self, item: Item, first: Item) -> None:
        """Give an item with the same bytes as another a copy of that one's result."""
        item.stage, item.error = first.stage, first.error
        item.done, item.total = first.done, first.total
        if first.pdf is not None:
            for candidate in atomic_files.names_like(self.target / f"{item.source.stem}.pdf"):
                with suppress(FileExistsError):
                    atomic_files.copy_whole(first.pdf, candidate, "deliver")
                    item.pdf = candidate
                    return
