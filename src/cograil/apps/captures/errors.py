"""Why a capture cannot be sealed, now or ever."""

from __future__ import annotations


class Unsealable(Exception):
    """What came is not what was announced, or cannot be opened: trying again would not help."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class StoreUnreachable(Exception):
    """The object storage does not answer as it should; later it may."""
