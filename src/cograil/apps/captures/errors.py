"""The errors of sealing."""

from __future__ import annotations


class Unsealable(Exception):
    """The object is not the announced one, or cannot be decrypted: retrying does not help."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class StoreUnreachable(Exception):
    """The object storage does not respond correctly; retrying may help."""
