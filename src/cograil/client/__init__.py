"""The client of the API: `Client` is synchronous, `AsyncClient` asynchronous; their methods are the same.

    from cograil.client import Client

    with Client("http://localhost:8080", key="cog_...") as cograil:
        job = cograil.submit("hello", {"name": "Ada"}, wait=10)
        print(job["status"], job["result"])

The code is in `async_client.py` and `_async`; `make docs` generates `sync_client.py` and `_sync` from it, and a
test compares them. With `connection=` a job is submitted in a transaction of the caller, without the API.
"""

from __future__ import annotations

from cograil.client.async_client import AsyncClient
from cograil.client.errors import ApiError, Unreachable
from cograil.client.models import Event, Job, Node
from cograil.client.sync_client import Client

__all__ = ["ApiError", "AsyncClient", "Client", "Event", "Job", "Node", "Unreachable"]
