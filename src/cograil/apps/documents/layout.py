"""The directory layout: the same directories for the common folder and, below `users`, for each user."""

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
SPARE = len(" (1000000)")  # room for the number that a taken name gets
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
    """One folder; `name` is "" for the common folder, `users/<id>` for a user.

    With plain names a PDF is named after its input; otherwise the name also has the job key.
    """

    root: Path
    name: str = ""
    has_plain_names: bool = False

    @property
    def base(self) -> Path:
        return self.root / self.name if self.name else self.root

    @property
    def user(self) -> str:
        """The id of its user; "" for the common folder."""
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

    def work_dir(self, key: str) -> Path:
        """The work directory of this key. Raises UsageError for an invalid key."""
        if not IS_KEY(key):
            raise UsageError(f"{key[:200]!r} is not the key of a document")
        return self.work / key

    def source(self, key: str, name: str) -> Path:
        """The path of this document's input; prefixed if its name is that of an artifact."""
        return self.work_dir(key) / (f"input-{name}" if is_artifact(name) else name)

    def pdf(self, name: str, key: str) -> Path:
        """The path of the PDF with the job key in its name."""
        ending = f"__job-{key}.pdf"
        return self.out / f"{fitted(Path(name).stem, MAX_NAME - len(ending))}{ending}"

    def plain_pdf(self, name: str) -> Path:
        """The path of the PDF with a plain name, if it is free."""
        return self.out / f"{fitted(Path(name).stem, MAX_NAME - len('.pdf') - SPARE)}.pdf"

    def make(self) -> None:
        """Create missing directories."""
        for directory in (
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
            directory.mkdir(parents=True, exist_ok=True)


def is_artifact(name: str) -> bool:
    """Whether this is the name of a file that a stage writes in a work directory."""
    return name in ARTIFACTS or name.startswith(TEMPORARY) or is_service_job(name)


def is_service_job(name: str) -> bool:
    """Whether this is a service job id, and so the name of a directory of a service."""
    return IS_SERVICE_JOB(name) is not None


def folder_of(root: Path, name: str) -> Folder:
    """The folder of this name. Raises UsageError for an invalid name."""
    if name and not (name.startswith(f"{USERS}/") and IS_USER(name.removeprefix(f"{USERS}/"))):
        raise UsageError(f"{name[:200]!r} is not a folder of documents")
    return Folder(root, name)


def folders_of(root: Path) -> list[Folder]:
    """The common folder, and that of every user with an `in`."""
    users = root / USERS
    names = sorted(path.name for path in users.iterdir()) if users.is_dir() else []
    user_ids = [name for name in names if IS_USER(name) and (users / name / "in").is_dir()]
    return [Folder(root), *(Folder(root, f"{USERS}/{name}") for name in user_ids)]
