"""`cograil subscriptions` and `cograil deliveries`, beside an instance whose relay is inside `up`."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.instances import Start
from tests.acceptance.shell import Shell, shell_in
from tests.support.webhook_receiver import SECRET, http_response, open_receiver, respond_in_turn

NOBODY = "019a8f2e-77aa-7000-8000-000000000000"
HERE = {"COGRAIL_OUTBOUND__ALLOW_NETWORKS": "127.0.0.0/8", "COGRAIL_RELAY__GIVE_UP_HOURS": "0.0001"}


@pytest.mark.usefixtures("used_data_dir")
@pytest.mark.timeout(180)
async def test_a_subscriber_is_added_told_listed_and_removed(
    start: Start, eventually: Any, tmp_path: Path
) -> None:
    shell = shell_in(tmp_path, **HERE)

    async def run(*words: str, stdin: str = "") -> Any:
        return await asyncio.to_thread(shell.run, *words, stdin=stdin)

    up = start("up", "--port", "0", "--workflows", ".", **HERE)
    await eventually(up.is_ready, timeout=60)
    async with open_receiver(respond_in_turn(http_response(500))) as receiver:
        made = await run(
            *("subscriptions", "add", receiver.url, "--type", "job.completed", "--secret-file", "-"),
            *("--header", "X-Own=mine", "--json"),
            stdin=f"{SECRET}\n",
        )
        assert (made.code, made.json["secret"], made.json["types"]) == (0, SECRET, ["cograil.job.completed"])
        (listed,) = (await run("subscriptions", "list", "--json")).json["subscriptions"]
        assert "secret" not in listed
        assert listed["subscription_id"] in (await run("subscriptions", "list")).out
        await run("submit", "greet", "--wait")
        dead = await _dead_letter(shell)
        assert (dead["last_status"], dead["type"]) == (500, "cograil.job.completed")
        assert (await run("deliveries", "list", "--job", dead["job_id"])).out.count(dead["delivery_id"]) == 1
        receiver.script = respond_in_turn(http_response(200))
        again = await run("deliveries", "resend", dead["delivery_id"])
        assert (again.code, again.err) == (0, f"delivery {dead['delivery_id']} is queued again\n")
        await eventually(lambda: len(receiver.requests) >= 2)
        assert all(
            request.is_signed() and request.headers["x-own"] == "mine" for request in receiver.requests
        )
        assert len({request.body for request in receiver.requests}) == 1
        rotated = await run("subscriptions", "rotate", listed["subscription_id"])
        assert (rotated.code, rotated.out[:6]) == (0, "whsec_")
        assert rotated.out.strip() != SECRET
        removed = await run("subscriptions", "remove", listed["subscription_id"], "--json")
        assert removed.json["state"] == "removed"
    assert (await run("subscriptions", "list")).out == "no subscriptions\n"
    for words in (
        ("subscriptions", "remove", NOBODY),
        ("subscriptions", "enable", "x"),
        ("subscriptions", "rotate", NOBODY),
        ("deliveries", "resend", NOBODY),
    ):
        assert (await run(*words)).code == 3
    refused = await run("subscriptions", "add", "http://10.0.0.1/", "--json")
    assert refused.code == 2
    assert json.loads(refused.out)["error"]["problems"][0]["code"] == "callback_blocked_address"


async def _dead_letter(shell: Shell) -> dict[str, Any]:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        listed = (await asyncio.to_thread(shell.run, "deliveries", "list", "--state", "dead", "--json")).json
        if listed["deliveries"]:
            letter: dict[str, Any] = listed["deliveries"][0]
            return letter
    raise AssertionError("no dead letter")
