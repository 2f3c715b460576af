"""Pictures, prepared as the first stage does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pikepdf
from tests.apps.documents import sample_documents

from cograil.apps.documents import prep


def prepared(source: Path, room: Path, **more: Any) -> int:
    room.mkdir(exist_ok=True)
    options = {"run": "1", "dpi": None, "is_resumed": False, "progress": lambda *_: None} | more
    return prep.prepare(source, room, **options).pages


def widths(pdf: Path) -> list[int]:
    """The widths of the pictures on its pages, which tell them apart."""
    with pikepdf.open(pdf) as opened:
        return [int(next(iter(page.get_images().values())).Width) for page in opened.pages]


def sized(width: int, kind: str = "PNG", mode: str = "L") -> bytes:
    return sample_documents.page("", kind, (width, 40), mode)
