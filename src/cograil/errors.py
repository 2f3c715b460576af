"""Errors that mean: the caller is wrong, or too late.

    CograilError
    ├── UsageError                the request cannot be understood            (exit 2)
    │   ├── InvalidInput          a job's input does not match its workflow
    │   ├── InvalidWorkflow       a workflow file has problems, all listed
    │   ├── QueueNotNamed         a node must name its queue and does not
    │   ├── WorkflowReserved      only the app that owns the workflow starts it
    │   └── InvalidSettings       a setting is wrong
    ├── NotFound                  the object does not exist, or nothing runs  (exit 3)
    │   ├── JobNotFound, NodeNotFound, WorkflowNotFound, SubscriptionNotFound, DeliveryNotFound,
    │   │   ScheduleNotFound
    │   └── NoInstance
    ├── Conflict                  the object's state forbids the operation    (exit 4)
    │   ├── AlreadyTerminal, NotFinished
    │   ├── VersionTaken
    │   ├── StaleAttempt          another worker owns the attempt
    │   ├── Forbidden             this user may not do it
    │   └── DirectoryInUse
    ├── WaitTimeout               the job did not end in time                 (exit 5)
    ├── UnsafeDatabase, UnsupportedEncoding, RolesMissing, SchemaMismatch
    │                             the database must not be used               (exit 2)
    └── DatabaseUnavailable       the database does not answer                (exit 3)

Exit code 1 is for jobs that failed or were cancelled.

The error of a handler is not one of these: it is an `Outcome` (model/outcome.py). A lost race is a return
value. Any other exception is a bug and propagates.

The first line of each docstring is the description of its code in docs/reference/errors.md.
"""

from __future__ import annotations

from dataclasses import dataclass


class CograilError(Exception):
    """An error that the caller can correct."""

    code = "error"
    exit_code = 1
    status = 500
    wait_seconds: float | None = None  # retry after this many seconds, if a retry can help


class UsageError(CograilError):
    """The request cannot be understood."""

    code, exit_code, status = "invalid", 2, 422


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in a file or an input, with its location."""

    code: str
    message: str
    pointer: str = ""
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        location = f"{self.line}:{self.column}: " if self.line is not None else ""
        return f"{location}{self.message} [{self.code}]"


class Problems(UsageError):
    """A file or an input has problems; all of them are listed."""

    code = "problems"
    headline = "there are problems"

    def __init__(self, problems: list[Problem], source: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        super().__init__("\n".join(_format_problem(source, problem) for problem in problems))


def _format_problem(source: str, problem: Problem) -> str:
    """Format as compilers do: `file:line:column: message`, or `file: message`."""
    space = "" if problem.line is not None else " "
    return f"{source}:{space}{problem}" if source else str(problem)


class InvalidWorkflow(Problems):
    """A workflow file has problems."""

    code = "invalid_workflow"


class InvalidInput(Problems):
    """The input of a job does not match its workflow."""

    code = "invalid_input"


class QueueNotNamed(UsageError):
    """COGRAIL_QUEUES__STRICT is on, and a node of the workflow does not name a queue."""

    code, status = "queue_not_named", 503

    def __init__(self, workflow_id: str, nodes: list[str]) -> None:
        super().__init__(
            f"COGRAIL_QUEUES__STRICT is on and workflow {workflow_id!r} does not name a queue for "
            f"{', '.join(nodes)}; add a `queue` to each of these nodes"
        )


class WorkflowReserved(UsageError):
    """The workflow, or one of its handlers, belongs to an app; only that app starts jobs of it."""

    code, exit_code, status = "workflow_reserved", 4, 403


class InvalidSettings(UsageError):
    """A setting is wrong."""

    code = "invalid_settings"


class NotFound(CograilError):
    """The object does not exist."""

    code, exit_code, status = "not_found", 3, 404


class JobNotFound(NotFound):
    """No job has this id."""

    code = "job_not_found"

    def __init__(self, job_id: object) -> None:
        super().__init__(f"job {job_id} does not exist")


class NodeNotFound(NotFound):
    """The job has no node with this name."""

    code = "node_not_found"

    def __init__(self, job_id: object, node_id: str, hint: str = "") -> None:
        super().__init__(f"job {job_id} has no node {node_id!r}{hint and f'; {hint}'}")


class WorkflowNotFound(NotFound):
    """No workflow with this name and version is published."""

    code = "workflow_not_found"

    def __init__(self, workflow_id: str, version: int | None = None) -> None:
        name = f"workflow {workflow_id!r}" + (f" version {version}" if version is not None else "")
        super().__init__(f"{name} is not published; publish it with `cograil publish FILE`")


class ScheduleNotFound(NotFound):
    """No schedule has this name."""

    code = "schedule_not_found"

    def __init__(self, name: object) -> None:
        super().__init__(f"schedule {name} does not exist")


class SubscriptionNotFound(NotFound):
    """No subscription has this id."""

    code = "subscription_not_found"

    def __init__(self, subscription_id: str) -> None:
        super().__init__(f"subscription {subscription_id[:64]} does not exist")


class DeliveryNotFound(NotFound):
    """No delivery has this id."""

    code = "delivery_not_found"

    def __init__(self, delivery_id: str) -> None:
        super().__init__(f"delivery {delivery_id[:64]} does not exist")


class NoInstance(NotFound):
    """No instance runs on this data directory."""

    code = "no_instance"


class Conflict(CograilError):
    """The current state of the object forbids the operation."""

    code, exit_code, status = "conflict", 4, 409


class AlreadyTerminal(Conflict):
    """The job has already ended; an ended job is final."""

    code = "already_terminal"

    def __init__(self, job_id: object, status: str) -> None:
        super().__init__(f"job {job_id} is already {status}")


class NotFinished(Conflict):
    """The job is still running."""

    code = "not_finished"


class VersionTaken(Conflict):
    """This version is already published with different content."""

    code = "version_taken"


class StaleAttempt(Conflict):
    """The caller no longer owns this attempt: it was lost, timed out or reassigned."""

    code = "stale_attempt"

    def __init__(self, task_id: object) -> None:
        super().__init__(f"the caller does not own task {task_id}, or no longer owns it; stop working on it")


class CheckpointOutOfOrder(Conflict):
    """A checkpoint of a later phase is already stored."""

    code = "checkpoint_out_of_order"

    def __init__(self, phase_index: object) -> None:
        super().__init__(f"a checkpoint of a later phase than {phase_index} is already stored and is kept")


class Forbidden(Conflict):
    """This user may not perform the operation."""

    code, status = "forbidden", 403


class DirectoryInUse(Conflict):
    """Another instance runs on this data directory."""

    code = "directory_in_use"


class WaitTimeout(CograilError):
    """The job did not end within the given time."""

    code, exit_code, status = "timeout", 5, 504


class DatabaseUnavailable(CograilError):
    """The database cannot be reached."""

    code, exit_code, status = "database_unavailable", 3, 503


class Overloaded(DatabaseUnavailable):
    """Too many concurrent requests; retry later."""

    code = "overloaded"


class UnsafeDatabase(CograilError):
    """The database server may lose committed transactions."""

    code, exit_code, status = "unsafe_database", 2, 503


class UnsupportedEncoding(UnsafeDatabase):
    """The database does not store text as UTF-8."""

    code = "unsupported_encoding"


class RolesMissing(CograilError):
    """The server lacks one of cograil's roles, or the database lacks their grants."""

    code, exit_code, status = "roles_missing", 2, 503


class SchemaMismatch(CograilError):
    """The database schema does not match this version of cograil."""

    code, exit_code, status = "schema_mismatch", 2, 503
