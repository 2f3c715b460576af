"""The asynchronous client. `sync_client.py` is generated from this file: see tools/clients.py."""

from __future__ import annotations

from cograil.client._async.jobs_api import Jobs
from cograil.client._async.monitoring_api import Observing
from cograil.client._async.schedules_api import Calendar
from cograil.client._async.streams_api import Streams
from cograil.client._async.webhooks_api import Telling
from cograil.client._async.workers_api import Working
from cograil.client._async.workflows_api import Workflows


class AsyncClient(Jobs, Workflows, Working, Telling, Calendar, Observing, Streams):
    """The API of one instance. Raises ApiError for what it refuses, Unreachable when it does not answer."""
