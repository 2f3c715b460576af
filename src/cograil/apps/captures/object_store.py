"""Where the encrypted objects are: a directory, or anything that speaks S3.

For S3 the usual variables say who we are and where it is: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_REGION, AWS_ENDPOINT_URL. Nothing is written here: devices upload, we read.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import BaseError, InvalidPathError
from obstore.store import from_url

from cograil.apps.captures.errors import StoreUnreachable, Unsealable

CHUNK = 1024 * 1024
RETRY: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}  # the engine tries again, too
# A large object may take long, as long as it comes: what ends all of it is the timeout of the node.
LONGEST, MAX_SILENCE = timedelta(hours=1), timedelta(seconds=60)
NO_BUCKET = "<Code>NoSuchBucket</Code>"  # somebody named a wrong one: nothing is said of the object by that
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


@dataclass(frozen=True, slots=True)
class Found:
    """An object: its size, and its bytes as they come."""

    size: int
    chunks: AsyncIterator[bytes]


class Objects:
    """One store of objects, by its URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store: Any = None

    @asynccontextmanager
    async def open(self, key: str) -> AsyncIterator[Found]:
        """The object of this key. Raises Unsealable (object_missing), or StoreUnreachable."""
        try:
            found = await obstore.get_async(self._opened(), key)
            yield Found(found.meta["size"], _chunks(found))
        except FileNotFoundError as error:
            if NO_BUCKET in str(error):
                raise StoreUnreachable("there is no such bucket") from error
            raise Unsealable("object_missing", f"there is no object {key!r} in the store") from None
        except (InvalidPathError, ValueError) as error:
            raise Unsealable("object_missing", f"{key!r} cannot be the key of an object") from error
        except (BaseError, OSError) as error:
            raise StoreUnreachable(str(error).partition("\n")[0]) from error

    def _opened(self) -> Any:
        if self._store is None:
            is_plain = any(os.environ.get(name, "").startswith("http://") for name in ENDPOINTS)
            options: Any = {
                "timeout": LONGEST,
                "read_timeout": MAX_SILENCE,
                "connect_timeout": timedelta(seconds=5),
                "allow_http": is_plain,
            }
            if self._url.startswith("file:"):
                self._store = from_url(self._url)
            else:
                self._store = from_url(self._url, retry_config=RETRY, client_options=options)
        return self._store


async def _chunks(found: Any) -> AsyncIterator[bytes]:
    async for chunk in found.stream(min_chunk_size=CHUNK):
        yield bytes(chunk)


def url_of(directory: Path) -> str:
    """The URL of a directory, which is made if it is not there."""
    directory.mkdir(parents=True, exist_ok=True)
    return directory.resolve().as_uri()
