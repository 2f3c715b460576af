"""The exceptions by which a handler says how it ends, or learns that it must."""

from __future__ import annotations

from cograil.model.workflow import Json


class Retry(Exception):
    """Raised by a handler: this attempt failed, another may succeed.

    `after_seconds` is how long to wait before that one, for those who were told (`Retry-After`); the
    `max_delay_seconds` of the node still bounds it.
    """

    # Also for a class of the user's whose own __init__ does not call ours.
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
    """Raised by a handler: it failed, and trying again cannot help."""

    code: str = "failed"
    details: Json = None

    def __init__(self, message: str = "", *, code: str = "failed", details: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class Cancelled(Exception):
    """The attempt was told to stop; raised by `ctx.raise_if_cancelled()`."""


class AttemptLost(Cancelled):
    """The task was given to somebody else: whatever this attempt still does is in vain."""
