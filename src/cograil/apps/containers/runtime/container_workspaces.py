"""ContainerWorkspaces: the workspaces of containers on this machine, one directory for each run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cograil.model.ids import is_id, new_id
from cograil.workspace.confined_tree import remove_tree

PLACE = ".place"


class ContainerWorkspaces:
    """All rooms below one directory, which nobody else may enter; whoever is inside may do what they like."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        parent.mkdir(parents=True, exist_ok=True)
        parent.chmod(0o700)
        self.place = self._read_place()

    def make(self, name: str) -> Path:
        """The room of this name; the same if it is there already."""
        room = self._parent / name
        room.mkdir(exist_ok=True)
        room.chmod(0o777)  # whoever the image runs as
        return room

    def remove(self, name: str) -> None:
        """Remove it with all that is in it. That it is gone already is fine."""
        parent = os.open(self._parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            remove_tree(parent, name)
        except FileNotFoundError:
            pass
        finally:
            os.close(parent)

    def names(self) -> Iterator[str]:
        """Of all that are there."""
        return (entry.name for entry in os.scandir(self._parent) if entry.name != PLACE)

    def _read_place(self) -> str:
        """Who these rooms belong to: the containers that are mounted there say so."""
        file = self._parent / PLACE
        mine = self._parent / f"{PLACE}-{os.getpid()}"
        mine.write_text(new_id())
        try:
            os.link(mine, file)  # whole, and only if there is none
        except FileExistsError:
            pass
        finally:
            mine.unlink()
        place = file.read_text()
        if not is_id(place):
            raise OSError(f"{file} is damaged; remove it when no container runs")
        return place
