"""Images of the sandbox: root file systems in a directory, each made from a tar."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote

from cograil.errors import UsageError
from cograil.workspace.confined_tree import hidden_name, remove_tree
from cograil.workspace.rootfs_extract import RootExtracted, extract_root

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,199}")


class InvalidImage(UsageError):
    """The name is not that of an image, or the archive is not a root file system."""

    code = "invalid_image"


def image_directory(images: Path, name: str) -> Path:
    """The directory of the image of this name. Raises InvalidImage."""
    if not _NAME.fullmatch(name):
        raise InvalidImage(f"{name[:80]!r} is not the name of an image")
    return images / quote(name.removesuffix(":latest"), safe="")


def image_names(images: Path) -> Iterator[str]:
    """The names of all images, in order."""
    if images.is_dir():
        yield from sorted(unquote(entry.name) for entry in images.iterdir() if not entry.name.startswith("."))


def import_image(images: Path, name: str, archive: BinaryIO, owner: int | None) -> RootExtracted:
    """Make an image from a tar or tar.gz; one of the same name is replaced. Raises WorkspaceError.

    It appears under its name when the last byte was fine, or not at all. All of it belongs to `owner`.
    """
    directory = image_directory(images, name)
    images.mkdir(mode=0o700, parents=True, exist_ok=True)
    hidden = images / hidden_name()
    hidden.mkdir(mode=0o755)
    try:
        extracted = extract_root(archive, hidden, owner=owner)
        if not extracted.has_shell:
            raise InvalidImage("there is no /bin/sh in this archive; an image needs one to run its command")
        _put(images, hidden, directory)
    finally:
        _removed(images, hidden.name)
    return extracted


def _put(images: Path, new: Path, directory: Path) -> None:
    """Replace the image by two renames; it is missing for a moment."""
    old = images / hidden_name()
    if directory.exists():
        os.rename(directory, old)
    os.rename(new, directory)
    _removed(images, old.name)


def _removed(images: Path, name: str) -> None:
    directory = os.open(images, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if os.path.lexists(images / name):
            remove_tree(directory, name)
    finally:
        os.close(directory)
