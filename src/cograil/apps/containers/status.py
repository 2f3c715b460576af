"""What a caller is told of a container job: follows from what is committed, and never goes back."""

from __future__ import annotations

from dataclasses import dataclass

from cograil.apps.containers.queries import ContainerJob
from cograil.model.workflow import Json

ACCEPTED, RUNNING, COMPLETED, FAILED, CANCELLED = "accepted", "running", "completed", "failed", "cancelled"
KILLED, NEVER_RAN = 137, -1


@dataclass(frozen=True, slots=True)
class Status:
    """The word for it, and how it ended, if it has; `kind` is a code for a bad end.

    `is_told`: its attempt told the event of its exit.
    """

    word: str
    exit_code: int | None = None
    error: str | None = None
    is_told: bool = False
    kind: str = ""

    @property
    def is_final(self) -> bool:
        return self.word not in (ACCEPTED, RUNNING)


def status_of(job: ContainerJob) -> Status:
    """How it stands. The end of the container decides, also while files are still put where they go."""
    if job.status is not None:
        return Status(job.status, job.exit_code, job.error, is_told=True)
    known = job.checkpoint if isinstance(job.checkpoint, dict) else {}
    if (ended := known.get("exit")) is not None:
        word = FAILED if ended["kind"] else COMPLETED
        return Status(word, ended["code"], ended["error"], is_told=True, kind=ended["kind"])
    has_run = bool(known.get("container") or known.get("was_elsewhere"))
    match job.job_status:
        case "cancelled":
            return Status(CANCELLED, KILLED, "cancelled")
        case None:
            return Status(FAILED, KILLED if has_run else NEVER_RAN, "its job was deleted")
        case "failed" | "completed":
            return Status(FAILED, KILLED if has_run else NEVER_RAN, _message(job.job_error))
    return Status(RUNNING if has_run else ACCEPTED)


def _message(error: Json) -> str:
    """Of a job that failed without anybody knowing how its container ended."""
    return str(error.get("message") or error.get("code")) if isinstance(error, dict) else "it failed"


def view_of(id: str, status: Status) -> dict[str, Json]:
    """As the API shows it."""
    view: dict[str, Json] = {"id": id, "status": status.word}
    if status.exit_code is not None:
        view["exitCode"] = status.exit_code
    return view if status.error is None else view | {"error": status.error}
