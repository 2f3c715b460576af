"""The store of encrypted objects: a directory or an S3-compatible service, read-only.

S3 is configured by the usual variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL.
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
# A large object may take long while data arrives; the timeout of the node bounds all of it.
MAX_SECONDS, MAX_SILENCE = timedelta(hours=1), timedelta(seconds=60)
NO_BUCKET = "<Code>NoSuchBucket</Code>"  # a wrong bucket name says nothing about the object
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object: its size, and its bytes in chunks."""

    size: int
    chunks: AsyncIterator[bytes]


class ObjectStore:
    """A store of objects at a URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store: Any = None

    @asynccontextmanager
    async def open(self, key: str) -> AsyncIterator[StoredObject]:
        """The object of this key. Raises Unsealable (object_missing), or StoreUnreachable."""
        try:
            response = await obstore.get_async(self._opened(), key)
            yield StoredObject(response.meta["size"], _chunks(response))
        except FileNotFoundError as error:
            if NO_BUCKET in str(error):
                raise StoreUnreachable("the bucket does not exist") from error
            raise Unsealable("object_missing", f"the object {key!r} does not exist in the store") from None
        except (InvalidPathError, ValueError) as error:
            raise Unsealable("object_missing", f"{key!r} cannot be the key of an object") from error
        except (BaseError, OSError) as error:
            raise StoreUnreachable(str(error).partition("\n")[0]) from error

    def _opened(self) -> Any:
        if self._store is None:
            is_plain = any(os.environ.get(name, "").startswith("http://") for name in ENDPOINTS)
            options: Any = {
                "timeout": MAX_SECONDS,
                "read_timeout": MAX_SILENCE,
                "connect_timeout": timedelta(seconds=5),
                "allow_http": is_plain,
            }
            if self._url.startswith("file:"):
                self._store = from_url(self._url)
            else:
                self._store = from_url(self._url, retry_config=RETRY, client_options=options)
        return self._store


async def _chunks(response: Any) -> AsyncIterator[bytes]:
    async for chunk in response.stream(min_chunk_size=CHUNK):
        yield bytes(chunk)


def url_of(directory: Path) -> str:
    """The URL of a directory, which is made if it is not there."""
    directory.mkdir(parents=True, exist_ok=True)
    return directory.resolve().as_uri()
