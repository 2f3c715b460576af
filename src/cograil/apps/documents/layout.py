"""Where everything is: the same directories for the house and, below `users`, for each user."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cograil.apps.documents.atomic_files import HIDDEN, MAX_NAME, fitted
from cograil.errors import UsageError

IS_KEY = re.compile(r"[0-9a-f]{64}__[0-9a-f]{64}(__f[0-9a-f]{8})?").fullmatch
IS_SERVICE_JOB = re.compile(
    r"[0-9a-f]{64}__[0-9a-f]{64}(__f[0-9a-f]{8})?(\.[0-9A-Za-z-]{1,36})?\.[0-9]{1,9}"
).fullmatch
IS_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}").fullmatch
USERS = "users"
SPARE = len(" (1000000)")  # for the number of a name that is taken
RAW_PDF, FINAL_PDF, SIDECAR, STATE_FILE = "raw.pdf", "final.pdf", "final.txt", "state.json"
OUT_NAME = "out.name"  # says which plain name the PDF gets
ARTIFACTS = frozenset(
    {
        RAW_PDF,
        FINAL_PDF,
        SIDECAR,
        STATE_FILE,
        OUT_NAME,
        "pages",
        "tmp",
        "prep.log",
        "ocr.log",
        "prep.heartbeat",
        "ocr.heartbeat",
    }
)
TEMPORARY = (HIDDEN, "raw.tmp.", "final.tmp.")


@dataclass(frozen=True, slots=True)
class Folder:
    """One data directory; `name` is "" for the house, `users/<id>` for a user.

    With plain names PDFs are called as their input, else also by their key.
    """

    root: Path
    name: str = ""
    has_plain_names: bool = False

    @property
    def base(self) -> Path:
        return self.root / self.name if self.name else self.root

    @property
    def user(self) -> str:
        """Whose it is; "" for the house."""
        return self.name.removeprefix(f"{USERS}/")

    @property
    def arrivals(self) -> Path:
        return self.base / "in"

    @property
    def work(self) -> Path:
        return self.base / "work"

    @property
    def staging(self) -> Path:
        return self.work / "_staging"

    @property
    def out(self) -> Path:
        return self.base / "out"

    @property
    def archive(self) -> Path:
        return self.base / "archive"

    @property
    def error(self) -> Path:
        return self.base / "error"

    @property
    def held(self) -> Path:
        return self.base / "hold" / "duplicates"

    @property
    def reports(self) -> Path:
        return self.base / "reports" / "duplicates"

    @property
    def rejections(self) -> Path:
        return self.base / "reports" / "rejected"

    @property
    def index(self) -> Path:
        return self.base / "index"

    def room(self, key: str) -> Path:
        """The directory of one job. Raises UsageError for what is no key."""
        if not IS_KEY(key):
            raise UsageError(f"{key[:200]!r} is no key of a document")
        return self.work / key

    def source(self, key: str, name: str) -> Path:
        """Where the input of this document is: by its name, unless that is one of ours."""
        return self.room(key) / (f"input-{name}" if is_artifact(name) else name)

    def pdf(self, name: str, key: str) -> Path:
        """Where the PDF of this input goes."""
        ending = f"__job-{key}.pdf"
        return self.out / f"{fitted(Path(name).stem, MAX_NAME - len(ending))}{ending}"

    def plain_pdf(self, name: str) -> Path:
        """Where the PDF of this input goes with plain names, if nothing else is there."""
        return self.out / f"{fitted(Path(name).stem, MAX_NAME - len('.pdf') - SPARE)}.pdf"

    def make(self) -> None:
        """Make what is missing."""
        for place in (
            self.arrivals,
            self.staging,
            self.out,
            self.archive,
            self.error,
            self.held,
            self.reports,
            self.rejections,
            self.index,
        ):
            place.mkdir(parents=True, exist_ok=True)


def is_artifact(name: str) -> bool:
    """Whether a file of this name in a work directory is made by us."""
    return name in ARTIFACTS or name.startswith(TEMPORARY) or is_service_job(name)


def is_service_job(name: str) -> bool:
    """Whether this is the id of a job that a watcher gives to a service, and so the name of its directory."""
    return IS_SERVICE_JOB(name) is not None


def folder_of(root: Path, name: str) -> Folder:
    """The folder of this name. Raises UsageError for what is none."""
    if name and not (name.startswith(f"{USERS}/") and IS_USER(name.removeprefix(f"{USERS}/"))):
        raise UsageError(f"{name[:200]!r} is no folder of documents")
    return Folder(root, name)


def folders_of(root: Path) -> list[Folder]:
    """The house, and every user who has an `in`."""
    users = root / USERS
    names = sorted(one.name for one in users.iterdir()) if users.is_dir() else []
    found = [name for name in names if IS_USER(name) and (users / name / "in").is_dir()]
    return [Folder(root), *(Folder(root, f"{USERS}/{name}") for name in found)]
