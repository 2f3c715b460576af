"""What may go wrong because a caller is wrong or too late.

    CograilError
    ├── UsageError                what was given cannot be understood         (exit 2)
    │   ├── InvalidInput          the input of a job does not fit its workflow
    │   ├── InvalidWorkflow       a workflow file has problems, all listed
    │   ├── QueueNotNamed         queues must be named here, and one is not
    │   ├── WorkflowReserved      only the app that owns the workflow starts it
    │   └── InvalidSettings       a setting is wrong
    ├── NotFound                  no such thing, or nothing runs there        (exit 3)
    │   ├── JobNotFound, NodeNotFound, WorkflowNotFound, SubscriptionNotFound, DeliveryNotFound,
    │   │   ScheduleNotFound
    │   └── NoInstance
    ├── Conflict                  it exists, in a state that forbids this     (exit 4)
    │   ├── AlreadyTerminal, NotFinished
    │   ├── VersionTaken
    │   ├── StaleAttempt          somebody else has the attempt now
    │   ├── Forbidden             not by this person
    │   └── DirectoryInUse
    ├── WaitTimeout               it did not end in the time given            (exit 5)
    ├── UnsafeDatabase, UnsupportedEncoding, RolesMissing, SchemaMismatch
    │                             such a database is not used                 (exit 2)
    └── DatabaseUnavailable       nothing answers there                       (exit 3)

Exit 1 is for jobs that failed or were cancelled.

An error of a handler is none of these: it is an `Outcome` (model/outcome.py). A lost race is a
return value. A bug is any other exception, and propagates.
"""

from __future__ import annotations

from dataclasses import dataclass


class CograilError(Exception):
    """Something a person can mend."""

    code = "error"
    exit_code = 1
    status = 500
    wait_seconds: float | None = None  # after which to come again, if that helps


class UsageError(CograilError):
    """What was given cannot be understood."""

    code, exit_code, status = "invalid", 2, 422


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a file or an input, and where."""

    code: str
    message: str
    pointer: str = ""
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        where = f"{self.line}:{self.column}: " if self.line is not None else ""
        return f"{where}{self.message} [{self.code}]"


class Problems(UsageError):
    """A list of problems, all that were found at once."""

    code = "problems"
    headline = "there are problems"

    def __init__(self, problems: list[Problem], source: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        super().__init__("\n".join(_at(source, problem) for problem in problems))


def _at(source: str, problem: Problem) -> str:
    """As compilers say it: `file:line:column: what`, or `file: what`."""
    space = "" if problem.line is not None else " "
    return f"{source}:{space}{problem}" if source else str(problem)


class InvalidWorkflow(Problems):
    """A workflow file has problems."""

    code = "invalid_workflow"


class InvalidInput(Problems):
    """The input of a job does not fit its workflow."""

    code = "invalid_input"


class QueueNotNamed(UsageError):
    """Queues must be named here (COGRAIL_QUEUES__STRICT), and a node of the workflow has none."""

    code, status = "queue_not_named", 503

    def __init__(self, workflow_id: str, nodes: list[str]) -> None:
        super().__init__(
            f"COGRAIL_QUEUES__STRICT is on and workflow {workflow_id!r} names no queue for "
            f"{', '.join(nodes)}; give each a `queue`"
        )


class WorkflowReserved(UsageError):
    """The workflow belongs to an app, or one of its handlers does: only the app starts jobs of it."""

    code, exit_code, status = "workflow_reserved", 4, 403


class InvalidSettings(UsageError):
    """A setting is wrong."""

    code = "invalid_settings"


class NotFound(CograilError):
    """No such thing."""

    code, exit_code, status = "not_found", 3, 404


class JobNotFound(NotFound):
    """No job has this id."""

    code = "job_not_found"

    def __init__(self, job_id: object) -> None:
        super().__init__(f"job {job_id} does not exist")


class NodeNotFound(NotFound):
    """The job has no node of this name."""

    code = "node_not_found"

    def __init__(self, job_id: object, node_id: str, hint: str = "") -> None:
        super().__init__(f"job {job_id} has no node {node_id!r}{hint and f'; {hint}'}")


class WorkflowNotFound(NotFound):
    """No workflow of this name and version is published."""

    code = "workflow_not_found"

    def __init__(self, workflow_id: str, version: int | None = None) -> None:
        what = f"workflow {workflow_id!r}" + (f" version {version}" if version is not None else "")
        super().__init__(f"{what} is not published; see `cograil publish FILE`")


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
    """Nothing runs there."""

    code = "no_instance"


class Conflict(CograilError):
    """It exists, in a state that forbids this."""

    code, exit_code, status = "conflict", 4, 409


class AlreadyTerminal(Conflict):
    """The job has ended; a finished job is final."""

    code = "already_terminal"

    def __init__(self, job_id: object, status: str) -> None:
        super().__init__(f"job {job_id} is already {status}")


class NotFinished(Conflict):
    """The job is still running."""

    code = "not_finished"


class VersionTaken(Conflict):
    """Other content is published under this version."""

    code = "version_taken"


class StaleAttempt(Conflict):
    """The attempt is no longer whoever speaks of it's: it was lost, timed out or given to another."""

    code = "stale_attempt"

    def __init__(self, task_id: object) -> None:
        super().__init__(f"task {task_id} is not yours, or not yours any more; stop working on it")


class CheckpointOutOfOrder(Conflict):
    """The next attempt is to go on from a later phase than this one."""

    code = "checkpoint_out_of_order"

    def __init__(self, phase_index: object) -> None:
        super().__init__(f"there is a checkpoint of a later phase than {phase_index}; it stays")


class Forbidden(Conflict):
    """Somebody else may do this, but not this person."""

    code, status = "forbidden", 403


class DirectoryInUse(Conflict):
    """Another instance runs on this data directory."""

    code = "directory_in_use"


class WaitTimeout(CograilError):
    """It did not end in the time given."""

    code, exit_code, status = "timeout", 5, 504


class DatabaseUnavailable(CograilError):
    """The database cannot be reached."""

    code, exit_code, status = "database_unavailable", 3, 503


class Overloaded(DatabaseUnavailable):
    """More is asked for at once than can be done."""

    code = "overloaded"


class UnsafeDatabase(CograilError):
    """The database may forget what it acknowledged."""

    code, exit_code, status = "unsafe_database", 2, 503


class UnsupportedEncoding(UnsafeDatabase):
    """The database does not store text as UTF-8."""

    code = "unsupported_encoding"


class RolesMissing(CograilError):
    """The server lacks a role of cograil, or the database lacks its grants."""

    code, exit_code, status = "roles_missing", 2, 503


class SchemaMismatch(CograilError):
    """The schema in the database is not the one this program knows."""

    code, exit_code, status = "schema_mismatch", 2, 503
