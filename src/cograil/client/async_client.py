"""The asynchronous client. `sync_client.py` is generated from this file: see tools/clients.py."""

from __future__ import annotations

from cograil.client._async.jobs_api import JobsApi
from cograil.client._async.monitoring_api import MonitoringApi
from cograil.client._async.schedules_api import SchedulesApi
from cograil.client._async.streams_api import StreamsApi
from cograil.client._async.webhooks_api import WebhooksApi
from cograil.client._async.workers_api import WorkersApi
from cograil.client._async.workflows_api import WorkflowsApi


class AsyncClient(JobsApi, WorkflowsApi, WorkersApi, WebhooksApi, SchedulesApi, MonitoringApi, StreamsApi):
    """The API of one instance. Raises ApiError for an error response, Unreachable without a response."""
