"""The synchronous client.

Written by `make docs` from async_client.py; do not edit.
"""

from __future__ import annotations

from cograil.client._sync.jobs_api import Jobs
from cograil.client._sync.monitoring_api import Observing
from cograil.client._sync.schedules_api import Calendar
from cograil.client._sync.streams_api import Streams
from cograil.client._sync.webhooks_api import Telling
from cograil.client._sync.workers_api import Working
from cograil.client._sync.workflows_api import Workflows


class Client(Jobs, Workflows, Working, Telling, Calendar, Observing, Streams):
    """The API of one instance. Raises ApiError for what it refuses, Unreachable when it does not answer."""
