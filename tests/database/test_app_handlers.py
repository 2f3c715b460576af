"""Handlers of apps run only in jobs that the app itself starts: a matrix over every handler of every app.

The handlers are those that the apps register in a worker with all apps on: a new one is in here by itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.api_client import ApiClient
from tests.support.harness import Harness, quick_settings

from cograil.app_registry import App, installed_apps
from cograil.definitions import read_workflow
from cograil.errors import InvalidWorkflow, UsageError, WorkflowReserved
from cograil.model.handler_ownership import ENGINE, owner_of_handler
from cograil.processes.app_plugins import beside_worker
from cograil.processes.bulk_handler import register_bulk
from cograil.runners.context import Context
from cograil.runners.handler_registry import AppRegistry, Registry
from cograil.settings import Settings
from cograil.verbs.publish import publish

ONE_NODE = "workflow_id: {id}\nnodes:\n  only:\n    handler: {handler}\n    params: {{folder: '', key: x}}\n"


@pytest.fixture
def harness_settings(tmp_path: Path) -> Settings:
    """All apps are on."""
    return quick_settings(
        data_dir=tmp_path / "data", documents={"data_dir": tmp_path / "documents", "quiet_seconds": 0.1}
    )


@pytest_asyncio.fixture
async def handlers(harness: Harness, harness_settings: Settings) -> AsyncIterator[Registry]:
    """What the apps register beside a worker, and what the engine does."""
    registry = Registry()
    register_bulk(registry, harness.db, harness_settings)
    async with beside_worker(registry, harness.db, harness_settings):
        yield registry


def offered() -> set[str]:
    return {name for app in installed_apps() for name in app.offers}


async def test_no_other_tenant_may_name_a_handler_of_an_app(api: ApiClient, handlers: Registry) -> None:
    operator = await api.make_key("operator", tenant="rivals")
    names = handlers.names()
    assert {owner_of_handler(name) for name in names if name not in offered()} == {
        *(app.name for app in installed_apps() if app.name != "containers"),
        ENGINE,
    }
    for name in names:
        text = ONE_NODE.format(id="mine", handler=name)
        answer = await api.post("/api/v1/workflows", {"source": text}, key=operator)
        if name in offered():
            assert answer.status in (200, 201), (name, answer.raw)
            continue
        assert answer.status == 422, (name, answer.raw)
        assert answer.code == "handler_reserved", name
        assert answer.body["pointer"] == "/nodes/only/handler"
        fan = f"workflow_id: f\nnodes:\n  a: {{type: fan_out, source: [1], task: {{handler: {name}}}}}\n"
        assert (await api.post("/api/v1/workflows", {"source": fan}, key=operator)).status == 422


async def test_a_stored_workflow_with_a_reserved_handler_is_not_started(
    api: ApiClient, handlers: Registry
) -> None:
    """By submit, in a batch, by SQL, as a child, by a schedule: wherever a job begins."""
    operator = await api.make_key("operator", tenant="rivals")
    for name in set(handlers.names()) - offered():
        await _force(api.harness, ONE_NODE.format(id="old", handler=name))
        answer = await api.post("/api/v1/jobs", {"workflow_id": "old"}, key=operator)
        assert (answer.status, answer.code) == (403, "workflow_reserved"), name
        assert name in answer.body["detail"]
        await api.harness.rows("delete from cograil.workflows where workflow_id = 'old' returning 1")
        await _forget(api)


async def test_a_workflow_of_an_app_is_started_by_the_app_alone(api: ApiClient, handlers: Registry) -> None:
    text = ONE_NODE.format(id="cograil.documents", handler="documents.prep")
    async with api.harness.db.transaction("publish") as tx:
        for tenant in ("default", "rivals"):
            await publish(tx, read_workflow(text, app="documents"), text, tenant)
    parent = "workflow_id: parent\nnodes:\n  sub:\n    type: subworkflow\n"
    parent += "    subworkflow: {workflow_id: cograil.documents}\n"
    for tenant in ("default", "rivals"):
        key = await api.make_key("operator", tenant=tenant)
        answer = await api.post("/api/v1/jobs", {"workflow_id": "cograil.documents"}, key=key)
        assert (answer.status, answer.code) == (403, "workflow_reserved")
        batch = {"jobs": [{"workflow_id": "cograil.documents"}]}
        assert "workflow_reserved" in (await api.post("/api/v1/jobs/batch", batch, key=key)).raw.decode()
        plan = {"name": "nightly", "workflow_id": "cograil.documents", "cron": "0 3 * * *"}
        refused = await api.post("/api/v1/schedules", plan, key=key)
        assert (refused.status, refused.code) == (403, "workflow_reserved")
        assert (await api.post("/api/v1/workflows", {"source": parent}, key=key)).status == 201
    with pytest.raises(InvalidWorkflow, match="workflow_reserved"):
        read_workflow("workflow_id: cograil.mine\nnodes:\n  a: {handler: echo}\n")
    async with api.harness.running():
        job = await api.harness.submit(parent)
        ended = await api.harness.ended(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "workflow_reserved")


async def test_a_job_of_an_app_is_retried_with_its_own_inputs_only(harness: Harness) -> None:
    text = (
        "workflow_id: cograil.laundry\ninputs: {a: {type: string}}\nnodes:\n  only: {handler: cograil.bulk}\n"
    )
    job = await harness.submit(text, {"a": "x"}, app=ENGINE)
    await harness.cancel(job)
    with pytest.raises(WorkflowReserved, match="without other inputs"):
        await harness.retry(job, inputs={"a": "y"})
    assert await harness.retry(job)


async def test_jobs_from_sql_do_not_start_it_either(harness: Harness) -> None:
    text = ONE_NODE.format(id="cograil.documents", handler="documents.prep")
    async with harness.db.transaction("publish") as tx:
        await publish(tx, read_workflow(text, app="documents"), text)
    ((job,),) = await harness.rows("select cograil.submit('cograil.documents')::text")
    async with harness.orchestrator():
        ended = await harness.ended(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "workflow_reserved")


async def test_an_app_takes_over_what_an_older_version_of_it_published(harness: Harness) -> None:
    text = ONE_NODE.format(id="cograil.documents", handler="documents.prep")
    async with harness.db.transaction("publish") as tx:
        first = await publish(tx, read_workflow(text, app="documents"), text)
    await harness.rows("update cograil.workflows set app = null returning 1")
    async with harness.db.transaction("publish") as tx:
        second = await publish(tx, read_workflow(text, app="documents"), text)
    assert (first.definition_id, second.is_new) == (second.definition_id, False)
    assert await harness.rows("select app from cograil.workflows") == [("documents",)]


def test_an_app_registers_only_names_of_its_own() -> None:
    registry = Registry()
    own = AppRegistry(registry, "laundry", {"iron"})

    def wash(ctx: Context) -> None: ...

    assert own.register(wash, "laundry.wash").app == "laundry"
    assert own.register(wash, "iron").app == "laundry"
    with pytest.raises(UsageError, match="offers"):
        own.register(wash, "wash")
    assert registry.names() == ["iron", "laundry.wash"]
    assert App(name="laundry").offers == frozenset()


async def test_errors_of_an_apps_handler_name_no_paths(harness: Harness, harness_settings: Settings) -> None:
    secret = harness_settings.data_dir / "deep" / "secret.pdf"

    async def breaks(ctx: Context) -> None:
        secret.read_bytes()

    AppRegistry(harness.registry, "documents").register(breaks, "documents.breaks")
    text = ONE_NODE.format(id="cograil.documents", handler="documents.breaks").replace(
        "{folder: '', key: x}", "{}"
    )
    async with harness.running():
        ended = await harness.ended(
            await harness.submit(text + "    retry: {max_attempts: 1}\n", app="documents")
        )
    errors = str(ended["error"]) + str((await harness.nodes(ended["job_id"]))["only"]["error"])
    assert "[...]/deep/secret.pdf" in errors
    assert str(harness_settings.data_dir) not in errors
    assert str(Path(__file__).parents[2]) not in errors


async def _force(harness: Harness, text: str) -> None:
    """Publish as a version did that knew nothing of owners."""
    async with harness.db.transaction("publish") as tx:
        owner = owner_of_handler(text.split("handler: ")[1].split("\n", maxsplit=1)[0])
        await publish(tx, read_workflow(text, app=owner), text, "rivals")
    await harness.rows("update cograil.workflows set app = null where workflow_id = 'old' returning 1")


async def _forget(api: ApiClient) -> None:
    api.context.engine_context.definitions._known.clear()
