"""What may come in: its size, what it is by its first bytes, and whether there is room for it."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cograil.apps.documents import atomic_files
from cograil.apps.documents.archive_pages import IMAGES

MIB = 1024 * 1024
COMICS = frozenset({".cbz", ".cbr", ".zip", ".rar"})
ENDINGS = COMICS | {".pdf"} | IMAGES
FORCED = re.compile(r"__force-([0-9a-f]{8})$")

ZIP, RAR4, RAR5 = b"PK\x03\x04", b"Rar!\x1a\x07\x00", b"Rar!\x1a\x07\x01\x00"
PICTURES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"II*\x00", b"MM\x00*", b"BM", b"GIF87a", b"GIF89a")


class Kind(StrEnum):
    """What a document comes as."""

    ARCHIVE = "archive"
    PDF = "pdf"
    IMAGE = "image"
    FOLDER = "folder"


class Refused(StrEnum):
    """Why something goes to `error`."""

    SIZE = "input_too_large"
    SIGNATURE = "invalid_signature"
    DISK = "disk_full"
    IRREGULAR = "not_a_regular_file"


COUNTED_AS = {
    Refused.SIZE: "input_rejected_size",
    Refused.SIGNATURE: "input_rejected_signature",
    Refused.IRREGULAR: "input_rejected_signature",
    Refused.DISK: "disk_error",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why it is refused, in a word and in a sentence."""

    reason: Refused
    message: str


def kind_of(path: Path) -> Kind | None:
    """What this is, by its first bytes and not by its name; None for nothing that we take."""
    if path.is_symlink():
        return None
    if path.is_dir():
        return Kind.FOLDER
    with path.open("rb") as file:
        head = file.read(16)
    if head.startswith((ZIP, RAR4, RAR5)):
        return Kind.ARCHIVE
    if head.startswith(b"%PDF-"):
        return Kind.PDF
    is_webp = head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    return Kind.IMAGE if is_webp or head.startswith(PICTURES) else None


def refusal_of(path: Path, *, max_mb: int, name: str = "") -> Refusal | None:
    """Why this may not come in by what it is; None when it may."""
    size = atomic_files.size_of(path)
    if size > max_mb * MIB:
        return Refusal(Refused.SIZE, f"it has {size:,} bytes, and {max_mb} MB are allowed")
    kind = kind_of(path)
    if kind is None:
        return Refusal(Refused.SIGNATURE, "it is neither a ZIP, a RAR, a PDF nor a picture")
    if Path(name or path.name).suffix.lower() in COMICS and kind is not Kind.ARCHIVE:
        return Refusal(Refused.SIGNATURE, f"it is named like an archive, and is a {kind}")
    if kind is Kind.FOLDER and (odd := atomic_files.odd_below(path)):
        shown = atomic_files.cleaned(odd.name)
        return Refusal(Refused.IRREGULAR, f"it holds {shown!r}, neither a file, a directory nor a link")
    return None


def has_room(path: Path, place: Path, factor: float) -> bool:
    """Whether there is so many times its size left on the disk; where nobody knows, there is."""
    try:
        return shutil.disk_usage(place).free >= atomic_files.size_of(path) * factor
    except OSError:
        return True


def nonce_of(name: str) -> str:
    """The eight letters of a forced run, if this is the name of one."""
    found = FORCED.search(Path(name).stem)
    return found[1] if found else ""
