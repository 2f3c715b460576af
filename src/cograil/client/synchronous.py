"""The client of those who wait.

Written by `make docs` from asynchronous.py; do not edit.
"""

from __future__ import annotations

from cograil.client.waiting.calendar import Calendar
from cograil.client.waiting.jobs import Jobs
from cograil.client.waiting.observing import Observing
from cograil.client.waiting.streams import Streams
from cograil.client.waiting.telling import Telling
from cograil.client.waiting.workflows import Workflows
from cograil.client.waiting.working import Working


class Client(Jobs, Workflows, Working, Telling, Calendar, Observing, Streams):
    """The API of one instance. Raises ApiError for what it refuses, Unreachable when it does not answer."""
