"""What the pages of the tests show: a bit of everything that there can be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.browser.app_data import (
    add_companies,
    add_documents,
    enable_companies,
    open_registers,
    site_settings,
)
from tests.support.api_client import ApiClient, serve_api
from tests.support.harness import Harness, open_harness
from tests.support.webhook_receiver import (
    WebhookReceiver,
    http_response,
    open_receiver,
    respond_in_turn,
    run_relay,
)

from cograil.model.schedule import SchedulePlan
from cograil.processes.bulk_handler import register_bulk
from cograil.store.api_keys import find_key
from cograil.ui.browser_sessions import COOKIE
from cograil.ui.page_context import make_page_context
from cograil.verbs import outbox, schedules
from cograil.verbs.callback_targets import Receiver as Destination
from cograil.verbs.key_management import split_key

HELLO = """
workflow_id: hello
inputs:
  name: {type: string, default: Ada}
nodes:
  greet: {handler: hello_world, params: {name: "{{ inputs.name }}"}}
"""
HELLO_2 = HELLO.replace("workflow_id: hello", "workflow_id: hello\nversion: 2").replace(
    "greet: {", "before: {handler: echo, next: greet}\n  greet: {"
)
FAN = """
workflow_id: fan
name: A fan of many
inputs:
  items: {type: array}
  label: {type: string, required: false}
  allows_stale_auth: {type: boolean, default: true}
nodes:
  prepare: {handler: echo, params: {label: "{{ inputs.label }}"}, next: spread}
  spread:
    type: fan_out
    source: "{{ inputs.items }}"
    task: {handler: echo, params: {item: "{{ item }}"}}
    next: gather
  gather: {type: fan_in, next: route}
  route:
    type: conditional
    branches:
      - {name: many, condition: "{{ inputs.items | length > 5 }}", next: report}
      - {name: few, default: true, next: whisper}
  report: {handler: echo, next: END}
  whisper: {handler: echo, next: END}
"""
ASK = """
workflow_id: ask
nodes:
  question:
    type: approval
    approval:
      message: "Pay back 120?"
      timeout_seconds: 129600
      form:
        type: object
        properties: {method: {enum: [card, voucher]}, note: {type: string}}
        required: [method]
    next: pay
  pay: {handler: echo, params: {method: "{{ nodes.question.output.decision }}"}}
"""
BROKEN = """
workflow_id: broken
nodes:
  begin: {handler: echo, next: wrong}
  wrong: {handler: fail, params: {error_message: it broke}, retry: {max_attempts: 1}, next: never}
  never: {handler: echo}
"""
STUCK = """
workflow_id: stuck
nodes:
  first: {handler: echo, next: long}
  long: {handler: nobody_has_this, queue: slow, next: last}
  last: {handler: echo}
"""
HALF = """
workflow_id: half
nodes:
  wrong: {handler: fail, params: {error_message: it broke}, retry: {max_attempts: 1}}
  waits: {type: approval, approval: {message: "Go on?"}}
"""
CROWD = """
workflow_id: crowd
nodes:
  many: {type: fan_out, source: [1, 2, 3, 4, 5], task: {handler: nobody_has_this}, next: one}
  one: {type: fan_in}
"""
# As long as names may be, and input that a line of a form cannot hold.
LONG_NAME = "a_long_one_" + "x" * 53
LONG_NODE = "a_node_" + "y" * 57
LONG = f"""
workflow_id: {LONG_NAME}
inputs:
  text: {{type: string, default: "first\\nsecond"}}
  is_sure: {{type: boolean, required: false}}
  nothing: {{type: string, required: false, default: null}}
nodes:
  {LONG_NODE}: {{handler: fail, params: {{error_message: "{"long" * 60}"}}, retry: {{max_attempts: 1}}}}
"""
FILES = (HELLO, HELLO_2, FAN, ASK, BROKEN, STUCK, HALF, CROWD, LONG)
ROLES = ("viewer", "submitter", "operator", "admin")


@dataclass
class SiteInfo:
    """Where a site is, who may log in, and which jobs it began with."""

    url: str
    keys: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)

    def cookie(self, role: str) -> dict[str, str]:
        """The session of this role, as a browser keeps it."""
        return {"name": COOKIE, "value": self.cookies[role], "url": f"{self.url}/ui/"}


@dataclass
class UiSite:
    """A server with pages, and what is on it."""

    lab: Harness
    api: ApiClient
    receiver: WebhookReceiver
    info: SiteInfo

    async def submit(self, workflow_id: str, **fields: Any) -> str:
        """A new job."""
        return await self.api.submit(workflow_id, **fields)

    async def post(self, path: str, body: Any = None) -> Any:
        answer = await self.api.post(f"/api/v1{path}", body)
        assert answer.status < 300, answer.raw
        return answer.body

    async def audited(self) -> list[tuple[str, str]]:
        """What was done, by action and target, the latest first."""
        return [
            (action, target)
            for action, target in await self.lab.rows(
                "select action, target from cograil.audit_log order by id desc limit 20"
            )
        ]

    async def status(self, job_id: str, *wanted: str) -> str:
        """The status of a job once it is one of these."""
        return str(await eventually(self._status(job_id, wanted)))

    def _status(self, job_id: str, wanted: tuple[str, ...]) -> Callable[[], Awaitable[str | None]]:
        async def look() -> str | None:
            status: str = (await self.lab.job(job_id))["status"]
            return status if status in wanted else None

        return look

    async def node_is(self, job_id: str, node_id: str, status: str) -> None:
        async def look() -> bool:
            return (await self.lab.statuses(job_id)).get(node_id) == status

        await eventually(look)


async def eventually(condition: Callable[[], Awaitable[Any]], timeout: float = 15.0) -> Any:
    """What this returns once it is something."""
    async with asyncio.timeout(timeout):
        while not (value := await condition()):  # noqa: ASYNC110  what it looks at has no event
            await asyncio.sleep(0.02)
        return value


async def fill_site(stack: AsyncExitStack, dsn: str, folder: Path) -> UiSite:
    """A site with jobs in every state, an approval, a schedule, a dead letter, keys and apps."""
    registers = await open_registers(stack)
    settings = site_settings(registers, folder, give_up_hours=0.0001)
    enter = stack.enter_async_context
    lab = await enter(open_harness(dsn, settings))
    lab.engine_context.outbound = settings.outbound
    receiver = await enter(open_receiver(respond_in_turn(http_response(500))))
    api = await enter(serve_api(lab, dsn))
    await enable_companies(stack, lab)
    register_bulk(lab.registry, lab.db, lab.settings)
    await enter(lab.running())
    await enter(run_relay(lab, give_up_hours=0.0001))
    site = UiSite(lab, api, receiver, SiteInfo(f"http://127.0.0.1:{api.port}"))
    for text in FILES:
        await lab.publish(text)
    await _keys(site)
    await _told(site)
    await _jobs(site)
    await add_companies(api, registers)
    await add_documents(lab)
    return site


async def _keys(site: UiSite) -> None:
    sessions = make_page_context(site.api.context).sessions
    for role in ROLES:
        key = await site.api.make_key(role, name=f"a {role}")
        key_id = (split_key(key) or ("", ""))[0]
        async with site.lab.db.transaction("test") as tx:
            stored = await find_key(tx, key_id)
        assert stored is not None
        session = sessions.begin(key_id, stored.hash)
        site.info.keys[role], site.info.cookies[role] = key, f"{session.text}.{session.signature}"
    site.api.key = site.info.keys["admin"]


async def _told(site: UiSite) -> None:
    lab = site.lab
    async with lab.db.transaction("test") as tx:
        await outbox.subscribe(
            tx,
            "default",
            Destination(site.receiver.url),
            lab.settings.outbound,
            types=["cograil.job.completed"],
        )
        plan = SchedulePlan("hello", "0 6 * * *", "Europe/Berlin", {"name": "Grace"})
        await schedules.create_schedule(tx, lab.engine_context, "default", "mornings", plan, by="ada")


async def _jobs(site: UiSite) -> None:
    jobs = site.info.jobs
    jobs["done"] = await site.submit("hello", labels={"customer": "acme"}, submitted_by="ada")
    jobs["fan"] = await site.submit("fan", input_params={"items": list(range(20)), "label": "needle"})
    jobs["broken"] = await site.submit("broken")
    jobs["stuck"] = await site.submit("stuck", labels={"urgent": "yes"})
    jobs["asking"] = await site.submit("ask")
    jobs["long"] = await site.submit(LONG_NAME, labels={"l" * 63: "v" * 255}, correlation_id="c" * 64)
    for name, wanted in (
        ("done", "completed"),
        ("fan", "completed"),
        ("broken", "failed"),
        ("long", "failed"),
    ):
        await site.status(jobs[name], wanted)
    await site.node_is(jobs["asking"], "question", "waiting")
    await site.node_is(jobs["stuck"], "long", "dispatched")

    async def is_dead() -> bool:
        return bool(await site.lab.rows("select 1 from cograil.deliveries where state = 'dead'"))

    await eventually(is_dead)
