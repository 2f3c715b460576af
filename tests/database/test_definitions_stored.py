"""Publish: a version of a workflow is kept for good, and only once."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from tests.support.harness import Harness

from cograil.definitions import read_workflow
from cograil.errors import VersionTaken
from cograil.store import workflow_queries
from cograil.verbs.definition_cache import DefinitionCache
from cograil.verbs.publish import keep_draft, publish

ONE = "workflow_id: w\nversion: 1\nnodes:\n  a: {handler: echo}\n"
OTHER = "workflow_id: w\nversion: 1\nnodes:\n  a: {handler: echo, params: {x: 1}}\n"


async def test_the_same_content_again_changes_nothing(harness: Harness) -> None:
    async with harness.db.transaction("publish") as tx:
        first = await publish(tx, read_workflow(ONE), ONE)
    spaced = ONE.replace("a: {handler: echo}", "a:\n      handler: echo  # as before")
    async with harness.db.transaction("publish") as tx:
        again = await publish(tx, read_workflow(spaced), spaced)
    assert (first.is_new, again.is_new) == (True, False)
    assert first.definition_id == again.definition_id
    assert await harness.rows("select source from cograil.workflows") == [(ONE,)]


async def test_other_content_under_a_version_is_refused_and_names_the_next_free_one(harness: Harness) -> None:
    await harness.publish(ONE)
    await harness.publish(OTHER.replace("version: 1", "version: 7"))
    with pytest.raises(VersionTaken, match="next free version is 8"):
        await harness.publish(OTHER)
    assert await harness.rows("select version from cograil.workflows order by 1") == [(1,), (7,)]


async def test_an_older_version_can_be_published_late_and_the_newest_is_the_default(harness: Harness) -> None:
    await harness.publish(ONE.replace("version: 1", "version: 3"))
    await harness.publish(OTHER.replace("version: 1", "version: 2"))
    async with harness.db.transaction("test") as tx:
        stored_workflow = await workflow_queries.find_workflow(tx, "default", "w", None)
    assert stored_workflow is not None
    assert stored_workflow[1] == 3


@pytest.mark.parametrize("second", [ONE, OTHER])
async def test_the_second_of_two_concurrent_publishes_is_answered_too(
    harness: Harness, second: str, eventually: Any
) -> None:
    """The second waits for the first to commit, and must then see what it published."""
    async with harness.db.transaction("publish") as tx:
        first = await publish(tx, read_workflow(ONE), ONE)
        waiting = asyncio.create_task(harness.publish(second))
        await eventually(lambda: _waits(harness))
    if second == ONE:
        assert await waiting == first.definition_id
    else:
        with pytest.raises(VersionTaken, match="next free version is 2"):
            await waiting


async def test_the_second_of_two_concurrent_publishes_wins_when_the_first_gives_up(
    harness: Harness, eventually: Any
) -> None:
    with contextlib.suppress(RuntimeError):
        async with harness.db.transaction("publish") as tx:
            await publish(tx, read_workflow(ONE), ONE)
            waiting = asyncio.create_task(harness.publish(OTHER))
            await eventually(lambda: _waits(harness))
            raise RuntimeError
    await waiting
    assert await harness.rows("select source from cograil.workflows") == [(OTHER,)]


async def test_drafts_are_told_apart_by_their_content_alone(harness: Harness) -> None:
    async with harness.db.transaction("draft") as tx:
        first = await keep_draft(tx, read_workflow(ONE), ONE)
        other = await keep_draft(tx, read_workflow(OTHER), OTHER)
        again = await keep_draft(tx, read_workflow(ONE), ONE)
    assert first.definition_id == again.definition_id != other.definition_id
    assert (first.is_new, other.is_new, again.is_new) == (True, True, False)


async def test_a_draft_is_no_published_version(harness: Harness) -> None:
    async with harness.db.transaction("draft") as tx:
        draft = await keep_draft(tx, read_workflow(ONE), ONE)
        assert await workflow_queries.find_workflow(tx, "default", "w", None) is None
        assert await workflow_queries.list_workflows(tx, "default") == []
    await harness.publish(OTHER)
    job = await harness.submit(ONE)
    rows = await harness.rows("select definition_id from cograil.jobs where id = %(id)s", id=job)
    assert rows == [(draft.definition_id,)]


async def test_tenants_publish_apart(harness: Harness) -> None:
    await harness.publish(ONE)
    async with harness.db.transaction("publish") as tx:
        assert (await publish(tx, read_workflow(OTHER), OTHER, tenant="acme")).is_new
        stored_workflow = await workflow_queries.find_workflow(tx, "acme", "w", 1)
    assert stored_workflow is not None


async def _waits(harness: Harness) -> list[tuple[Any, ...]]:
    return await harness.rows("select 1 from pg_locks where not granted")


async def test_the_definition_cache_keeps_workflows_in_use_when_one_more_comes(harness: Harness) -> None:
    """A pass that begins a child job still needs the workflows of its own jobs."""
    ids = [await harness.publish(f"workflow_id: w{n}\nnodes:\n  a: {{handler: echo}}\n") for n in range(4)]
    catalog = DefinitionCache(size=3)
    async with harness.db.transaction("test") as tx:
        await catalog.load(tx, ids[:3])
        await catalog.load(tx, [ids[0], ids[2]])
        assert (await catalog.get(tx, ids[3])).workflow_id == "w3"
        assert catalog.known.keys() == {ids[0], ids[2], ids[3]}
        assert len(await catalog.load(tx, ids)) == 4
