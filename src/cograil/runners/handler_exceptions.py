"""The exceptions that a handler raises to fail, or gets when it must stop."""

from __future__ import annotations

from cograil.model.workflow import Json


class Retry(Exception):
    """Raised by a handler: this attempt failed, another may succeed.

    `after_seconds` is the delay before the next attempt, for example from a `Retry-After` header. The
    `max_delay_seconds` of the node limits it.
    """

    # Class attributes, for a subclass whose __init__ does not call this one.
    code: str = "handler_error"
    details: Json = None
    after_seconds: float | None = None

    def __init__(
        self,
        message: str = "",
        *,
        code: str = "handler_error",
        details: Json = None,
        after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.details = details
        self.after_seconds = after_seconds


class Fail(Exception):
    """Raised by a handler: it failed, and a retry cannot succeed."""

    code: str = "failed"
    details: Json = None

    def __init__(self, message: str = "", *, code: str = "failed", details: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class Cancelled(Exception):
    """The attempt must stop; raised by `ctx.raise_if_cancelled()`."""


class AttemptLost(Cancelled):
    """Another worker owns the task now; the result of this attempt is discarded."""
