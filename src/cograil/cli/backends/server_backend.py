"""The whole interface over HTTP: jobs, workflows, schedules, webhooks, keys, the overview."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any, cast

from cograil.cli.backends.server_client import ServerClient, revive
from cograil.cli.backends.server_jobs import ServerConnection, ServerJobActions, ServerJobReads
from cograil.cli.backends.server_profiles import Server
from cograil.cli.instance_client import caller_traceparent
from cograil.definitions import load_workflow
from cograil.errors import UsageError
from cograil.model.schedule import SchedulePlan
from cograil.model.workflow import Workflow
from cograil.store.doctor import Finding, Level
from cograil.store.job_progress_queries import read_prefix
from cograil.store.job_queries import View
from cograil.verbs.callback_targets import Receiver


class ServerWorkflows(ServerConnection):
    """Published workflows and their schedules."""

    async def list_workflows(self) -> list[View]:
        workflows: list[View] = revive(await self.client.workflows())
        return workflows

    async def published_workflow(self, name: str, version: int | None) -> Workflow:
        workflow = await self.client.workflow(name, version)
        return load_workflow(workflow["definition"])

    async def publish(self, files: Sequence[tuple[Workflow, str]]) -> list[View]:
        return cast("list[View]", await self.client.publish_all([source for _, source in files]))

    async def list_schedules(self) -> list[View]:
        schedules: list[View] = revive(await self.client.schedules())
        return schedules

    async def find_schedule(self, name: str) -> View:
        return _view(await self.client.schedule(name))

    async def create_schedule(self, name: str, plan: SchedulePlan) -> View:
        return _view(await self.client.create_schedule(name, **_plan_fields(plan)))

    async def change_schedule(self, name: str, plan: SchedulePlan) -> View:
        return _view(await self.client.change_schedule(name, **_plan_fields(plan)))

    async def run_schedule(self, name: str) -> View:
        return _view(await self.client.run_schedule(name))

    async def list_firings(self, name: str, limit: int) -> list[View]:
        firings: list[View] = revive((await self.client.firings(name, limit=limit))["firings"])
        return firings

    async def pause_schedule(self, name: str, reason: str) -> View:
        return _view(await self.client.pause_schedule(name, reason=reason))

    async def resume_schedule(self, name: str, *, detach: bool) -> View:
        return _view(await self.client.resume_schedule(name, detach=detach))

    async def remove_schedule(self, name: str) -> None:
        await self.client.remove_schedule(name)

    async def backfill(self, name: str, first: datetime, until: datetime, *, preview: bool) -> View:
        result = await self.client.backfill(name, first.isoformat(), until.isoformat(), preview=preview)
        moments = [datetime.fromisoformat(moment) for moment in result["moments"]]
        return _view(result) | {"moments": moments}


class ServerAdmin(ServerConnection):
    """Webhooks, keys, and the state of the instance."""

    async def subscribe(self, receiver: Receiver, types: Sequence[str], workflow_id: str | None) -> View:
        fields: dict[str, Any] = {"types": list(types), "style": receiver.style, "headers": receiver.headers}
        optional = {"secret": receiver.secret, "workflow_id": workflow_id}
        fields |= {name: value for name, value in optional.items() if value is not None}
        return _view(await self.client.subscribe(receiver.url, **fields))

    async def list_subscriptions(self) -> list[View]:
        subscriptions: list[View] = revive(await self.client.subscriptions())
        return subscriptions

    async def unsubscribe(self, subscription_id: str) -> None:
        await self.client.unsubscribe(subscription_id)

    async def enable_subscription(self, subscription_id: str) -> View:
        return _view(await self.client.enable_subscription(subscription_id))

    async def rotate_subscription(
        self, subscription_id: str, secret: str | None, overlap_hours: float
    ) -> View:
        rotated = await self.client.rotate_subscription(subscription_id, secret, overlap_hours=overlap_hours)
        return _view(rotated)

    async def list_deliveries(self, state: str | None, job: str | None, limit: int) -> list[View]:
        job_id = None
        if job is not None:
            read_prefix(job)
            job_id = await self.client.resolve_job(job.strip())
        page = await self.client.deliveries(state=cast("Any", state), job_id=job_id, limit=limit)
        deliveries: list[View] = revive(page["deliveries"])
        return deliveries

    async def resend(self, delivery_ids: Sequence[str]) -> list[View]:
        return [_view(await self.client.resend(delivery_id)) for delivery_id in delivery_ids]

    async def list_keys(self, tenant: str | None) -> list[View]:
        if tenant is not None:
            raise UsageError(f"--tenant {tenant}: a server lists the keys of the tenant of the API key only")
        keys: list[View] = revive(await self.client.keys())
        return keys

    async def overview(self) -> View:
        overview: View = revive(await self.client.overview(), "at")
        return overview


class ServerBackend(ServerJobReads, ServerJobActions, ServerWorkflows, ServerAdmin):
    """An instance through its server, as the holder of an API key."""


@asynccontextmanager
async def open_server(server: Server) -> AsyncIterator[ServerBackend]:
    """Yield the backend of this server."""
    async with ServerClient(server.url, server.key, traceparent=caller_traceparent()) as client:
        yield ServerBackend(client, server.options)


LEVELS: dict[str, Level] = {"healthy": "green", "degraded": "yellow", "skipped": "yellow", "unhealthy": "red"}


async def examine_server(server: Server) -> list[Finding]:
    """Return what the server's health checks found."""
    async with ServerClient(server.url, server.key) as client:
        checks = (await client.health())["checks"]
    return [
        Finding(_level(check["status"], is_required=check["is_required"]), "", name, check["message"] or "ok")
        for name, check in checks.items()
    ]


def _level(status: str, *, is_required: bool) -> Level:
    """Return the level of a check; one that is not required is yellow at most."""
    return "yellow" if status == "unhealthy" and not is_required else LEVELS[status]


def _view(value: Any) -> View:
    view: View = revive(value)
    return view


def _plan_fields(plan: SchedulePlan) -> dict[str, Any]:
    fields = asdict(plan)
    return fields | {"input_params": fields.pop("input") or {}}
