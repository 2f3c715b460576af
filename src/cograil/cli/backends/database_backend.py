"""The whole interface on a database: jobs, workflows, schedules, webhooks, keys, the overview."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from cograil.cli.backends.database_jobs import DatabaseConnection, DatabaseJobActions, DatabaseJobReads
from cograil.cli.instance_client import audit, current_user
from cograil.errors import WorkflowNotFound
from cograil.model.schedule import SchedulePlan
from cograil.model.workflow import Workflow
from cograil.store.api_keys import list_keys
from cograil.store.database import Transaction
from cograil.store.job_progress_queries import resolve_job
from cograil.store.job_queries import View
from cograil.store.workflow_queries import find_workflow, list_workflows
from cograil.verbs import outbox, schedules
from cograil.verbs.callback_targets import Receiver
from cograil.verbs.file_schedules import sync_schedules
from cograil.verbs.overview import load_overview
from cograil.verbs.publish import missing_handlers, publish


class DatabaseWorkflows(DatabaseConnection):
    """Published workflows and their schedules."""

    async def list_workflows(self) -> list[View]:
        async with self.transaction("show") as tx:
            return await list_workflows(tx, self.tenant)

    async def published_workflow(self, name: str, version: int | None) -> Workflow:
        async with self.transaction("show") as tx:
            row = await find_workflow(tx, self.tenant, name, version)
            if row is None:
                raise WorkflowNotFound(name, version)
            return await self.engine_context.definitions.get(tx, row.definition_id)

    async def publish(self, files: Sequence[tuple[Workflow, str]]) -> list[View]:
        async with self.transaction("publish") as tx:
            return [await self._publish(tx, workflow, source) for workflow, source in files]

    async def _publish(self, tx: Transaction, workflow: Workflow, source: str) -> View:
        published = await publish(tx, workflow, source, self.tenant)
        if published.is_new:
            await audit(tx, "publish", f"{published.workflow_id} {published.version}")
        changes = await sync_schedules(tx, self.engine_context, workflow, self.tenant, by=current_user())
        for change in changes:
            await audit(tx, f"{change.verb} schedule", change.name, workflow_id=workflow.workflow_id)
        return {
            "workflow_id": published.workflow_id,
            "version": published.version,
            "digest": published.digest,
            "is_new": published.is_new,
            "schedules": [change._asdict() for change in changes],
            "warnings": await missing_handlers(tx, workflow),
        }

    async def list_schedules(self) -> list[View]:
        async with self.transaction("show") as tx:
            return await schedules.list_schedules(tx, self.tenant)

    async def find_schedule(self, name: str) -> View:
        async with self.transaction("show") as tx:
            schedule = await schedules.show_schedule(tx, self.tenant, name)
            return schedule | {"passed_over": await schedules.passed_over(tx, self.tenant, name)}

    async def create_schedule(self, name: str, plan: SchedulePlan) -> View:
        async with self.transaction("schedule") as tx:
            await audit(tx, "create schedule", name, workflow_id=plan.workflow_id, cron=plan.cron)
            return await schedules.create_schedule(
                tx, self.engine_context, self.tenant, name, plan, by=current_user()
            )

    async def change_schedule(self, name: str, plan: SchedulePlan) -> View:
        async with self.transaction("schedule") as tx:
            await audit(tx, "change schedule", name, workflow_id=plan.workflow_id, cron=plan.cron)
            return await schedules.change_schedule(tx, self.engine_context, self.tenant, name, plan)

    async def run_schedule(self, name: str) -> View:
        async with self.transaction("schedule") as tx:
            submitted = await schedules.run_schedule(tx, self.engine_context, self.tenant, name)
            await audit(tx, "run schedule", name, job_id=submitted["job_id"])
        return submitted

    async def list_firings(self, name: str, limit: int) -> list[View]:
        async with self.transaction("show") as tx:
            return await schedules.list_firings(tx, self.tenant, name, limit=limit)

    async def pause_schedule(self, name: str, reason: str) -> View:
        async with self.transaction("schedule") as tx:
            await audit(tx, "pause schedule", name, reason=reason)
            return await schedules.pause_schedule(tx, self.tenant, name, by=current_user(), reason=reason)

    async def resume_schedule(self, name: str, *, detach: bool) -> View:
        async with self.transaction("schedule") as tx:
            details: dict[str, Any] = {"detach": True} if detach else {}
            await audit(tx, "resume schedule", name, **details)
            return await schedules.resume_schedule(tx, self.tenant, name, detach=detach)

    async def remove_schedule(self, name: str) -> None:
        async with self.transaction("schedule") as tx:
            await schedules.remove_schedule(tx, self.tenant, name)
            await audit(tx, "remove schedule", name)

    async def backfill(self, name: str, first: datetime, until: datetime, *, preview: bool) -> View:
        async with self.transaction("schedule") as tx:
            if not preview:
                await audit(tx, "backfill", name, first=str(first), until=str(until))
            return await schedules.backfill(
                tx, self.engine_context, self.tenant, name, first, until, is_preview=preview
            )


class DatabaseAdmin(DatabaseConnection):
    """Webhooks, keys, and the state of the instance."""

    async def subscribe(self, receiver: Receiver, types: Sequence[str], workflow_id: str | None) -> View:
        async with self.transaction("subscribe") as tx:
            subscription = await outbox.subscribe(
                tx,
                self.tenant,
                receiver,
                self.client.settings.outbound,
                types=types,
                workflow_id=workflow_id,
                by=current_user(),
            )
            await audit(tx, "subscribe", subscription["subscription_id"], url=receiver.url)
        return subscription

    async def list_subscriptions(self) -> list[View]:
        async with self.transaction("show") as tx:
            return await outbox.list_subscriptions(tx, self.tenant)

    async def unsubscribe(self, subscription_id: str) -> None:
        async with self.transaction("unsubscribe") as tx:
            await outbox.unsubscribe(tx, self.tenant, subscription_id)
            await audit(tx, "unsubscribe", subscription_id)

    async def enable_subscription(self, subscription_id: str) -> View:
        async with self.transaction("enable") as tx:
            await audit(tx, "enable subscription", subscription_id)
            return await outbox.enable_subscription(tx, self.tenant, subscription_id)

    async def rotate_subscription(
        self, subscription_id: str, secret: str | None, overlap_hours: float
    ) -> View:
        async with self.transaction("subscribe") as tx:
            await audit(tx, "rotate subscription", subscription_id, overlap_hours=overlap_hours)
            return await outbox.rotate_subscription(tx, self.tenant, subscription_id, secret, overlap_hours)

    async def list_deliveries(self, state: str | None, job: str | None, limit: int) -> list[View]:
        async with self.transaction("show") as tx:
            job_id = await resolve_job(tx, job, self.tenant) if job else None
            return await outbox.list_deliveries(tx, self.tenant, state=state, job_id=job_id, limit=limit)

    async def resend(self, delivery_ids: Sequence[str]) -> list[View]:
        async with self.transaction("resend") as tx:
            for delivery_id in delivery_ids:
                await audit(tx, "resend", delivery_id)
            return [await outbox.resend(tx, self.tenant, delivery_id) for delivery_id in delivery_ids]

    async def list_keys(self, tenant: str | None) -> list[View]:
        async with self.transaction("keys") as tx:
            return await list_keys(tx, tenant)

    async def overview(self) -> View:
        async with self.client.db.transaction("show", tenant=self.tenant) as tx:
            return await load_overview(tx, self.engine_context.definitions, self.tenant)


class DatabaseBackend(DatabaseJobReads, DatabaseJobActions, DatabaseWorkflows, DatabaseAdmin):
    """An instance through its database, as the system user who runs the command."""
