"""The client of those who await. `synchronous.py` is written from this file: see tools/clients.py."""

from __future__ import annotations

from cograil.client.awaiting.calendar import Calendar
from cograil.client.awaiting.jobs import Jobs
from cograil.client.awaiting.observing import Observing
from cograil.client.awaiting.streams import Streams
from cograil.client.awaiting.telling import Telling
from cograil.client.awaiting.workflows import Workflows
from cograil.client.awaiting.working import Working


class AsyncClient(Jobs, Workflows, Working, Telling, Calendar, Observing, Streams):
    """The API of one instance. Raises ApiError for what it refuses, Unreachable when it does not answer."""
