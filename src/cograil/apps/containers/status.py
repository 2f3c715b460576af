"""The status of a container job, derived from committed data; it never moves back."""

from __future__ import annotations

from dataclasses import dataclass

from cograil.apps.containers.queries import ContainerJob
from cograil.model.workflow import Json

ACCEPTED, RUNNING, COMPLETED, FAILED, CANCELLED = "accepted", "running", "completed", "failed", "cancelled"
KILLED, NEVER_RAN = 137, -1


@dataclass(frozen=True, slots=True)
class Status:
    """A status word with the exit, if any; `kind` is the code of a failure.

    `is_told`: its attempt has published the exit event.
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
    """The status of a job. The exit of the container decides, also while output files are still transferred."""
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
    """The error of a failed job whose container exit is unknown."""
    return str(error.get("message") or error.get("code")) if isinstance(error, dict) else "it failed"


def view_of(id: str, status: Status) -> dict[str, Json]:
    """The API view of a container job."""
    view: dict[str, Json] = {"id": id, "status": status.word}
    if status.exit_code is not None:
        view["exitCode"] = status.exit_code
    return view if status.error is None else view | {"error": status.error}
