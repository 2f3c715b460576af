"""Checks on incoming files: size, type by the first bytes, free disk space."""

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
    """The type of an incoming document."""

    ARCHIVE = "archive"
    PDF = "pdf"
    IMAGE = "image"
    FOLDER = "folder"


class RefusalReason(StrEnum):
    """Why a file is moved to `error`."""

    SIZE = "input_too_large"
    SIGNATURE = "invalid_signature"
    DISK = "disk_full"
    IRREGULAR = "not_a_regular_file"


COUNTED_AS = {
    RefusalReason.SIZE: "input_rejected_size",
    RefusalReason.SIGNATURE: "input_rejected_signature",
    RefusalReason.IRREGULAR: "input_rejected_signature",
    RefusalReason.DISK: "disk_error",
}


@dataclass(frozen=True, slots=True)
class InputRefusal:
    """Why a file is refused: a code and a sentence."""

    reason: RefusalReason
    message: str


def kind_of(path: Path) -> Kind | None:
    """The type of this file by its first bytes, not by its name; None for an unsupported type."""
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


def refusal_of(path: Path, *, max_mb: int, name: str = "") -> InputRefusal | None:
    """Why this file is refused for its size or type; None when it is accepted."""
    size = atomic_files.size_of(path)
    if size > max_mb * MIB:
        return InputRefusal(RefusalReason.SIZE, f"it has {size:,} bytes, and {max_mb} MB are allowed")
    kind = kind_of(path)
    if kind is None:
        return InputRefusal(RefusalReason.SIGNATURE, "it is neither a ZIP, a RAR, a PDF nor a picture")
    if Path(name or path.name).suffix.lower() in COMICS and kind is not Kind.ARCHIVE:
        return InputRefusal(RefusalReason.SIGNATURE, f"it is named like an archive, and is a {kind}")
    if kind is Kind.FOLDER and (odd := atomic_files.odd_below(path)):
        odd_name = atomic_files.cleaned(odd.name)
        return InputRefusal(
            RefusalReason.IRREGULAR, f"it holds {odd_name!r}, neither a file, a directory nor a link"
        )
    return None


def has_disk_space(path: Path, directory: Path, factor: float) -> bool:
    """Whether the disk has `factor` times the size of the file free; True where the disk does not say."""
    try:
        return shutil.disk_usage(directory).free >= atomic_files.size_of(path) * factor
    except OSError:
        return True


def nonce_of(name: str) -> str:
    """The eight-letter nonce in the name of a forced run; "" in any other name."""
    match = FORCED.search(Path(name).stem)
    return match[1] if match else ""
