"""The synchronous client.

Written by `make docs` from async_client.py; do not edit.
"""

from __future__ import annotations

from cograil.client._sync.jobs_api import JobsApi
from cograil.client._sync.monitoring_api import MonitoringApi
from cograil.client._sync.schedules_api import SchedulesApi
from cograil.client._sync.streams_api import StreamsApi
from cograil.client._sync.webhooks_api import WebhooksApi
from cograil.client._sync.workers_api import WorkersApi
from cograil.client._sync.workflows_api import WorkflowsApi


class Client(JobsApi, WorkflowsApi, WorkersApi, WebhooksApi, SchedulesApi, MonitoringApi, StreamsApi):
    """The API of one instance. Raises ApiError for an error response, Unreachable without a response."""
