"""What the database calls a folder: an id that stays when the directory is mounted elsewhere."""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path
from uuid import UUID, uuid4

from cograil.apps.documents import files
from cograil.apps.documents.layout import Folder

MARK = ".cograil-folder"


def place_of(folder: Folder) -> str:
    """The name of this folder for the database."""
    return f"{_id_of(folder.root)}/{folder.name}"


@cache
def _id_of(root: Path) -> str:
    """The id of a data directory; whoever comes first gives it one."""
    mark = root / MARK
    if not mark.exists():
        root.mkdir(parents=True, exist_ok=True)
        hidden = mark.with_name(files.hidden_name())
        try:
            hidden.write_text(f"{uuid4()}\n")
            files.sync(hidden)
            with contextlib.suppress(FileExistsError):
                files.move(hidden, mark, "mark")
        finally:
            files.remove(hidden)
    return str(UUID(mark.read_text().strip()))
