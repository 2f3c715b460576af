"""ContainerSlots of containers: what runs already has one, and counts."""

from __future__ import annotations

import asyncio

from cograil.apps.containers.runtime.container_slots import ContainerSlots


async def settle() -> None:
    """Whatever can go on without anybody else has done so."""
    for _ in range(10):
        await asyncio.sleep(0)


class Container:
    """One that ends when it is told to."""

    def __init__(self, slots: ContainerSlots, *, runs_already: bool = False) -> None:
        self.may_end = asyncio.Event()
        self.has_begun = False
        self.task = asyncio.create_task(self._run(slots, runs_already))

    async def _run(self, slots: ContainerSlots, runs_already: bool) -> None:
        async with slots.one(runs_already=runs_already):
            self.has_begun = True
            await self.may_end.wait()

    async def end(self) -> None:
        self.may_end.set()
        await self.task
        await settle()


async def test_containers_run_up_to_the_number_of_slots() -> None:
    slots = ContainerSlots(2)
    first, second, third = (Container(slots) for _ in range(3))
    await settle()
    assert [container.has_begun for container in (first, second, third)] == [True, True, False]
    await second.end()
    assert third.has_begun
    for container in (first, third):
        await container.end()


async def test_running_containers_wait_for_no_slot_and_leave_none_to_others() -> None:
    slots = ContainerSlots(1)
    running = [Container(slots, runs_already=True) for _ in range(3)]
    new = [Container(slots) for _ in range(2)]
    await settle()
    assert all(container.has_begun for container in running)
    for container in running:
        assert not new[0].has_begun
        await container.end()
    assert [container.has_begun for container in new] == [True, False]
    late = Container(slots, runs_already=True)
    await settle()
    await new[0].end()
    assert (late.has_begun, new[1].has_begun) == (True, False)
    await late.end()
    assert new[1].has_begun
    await new[1].end()


async def test_a_cancelled_container_gives_its_slot_back() -> None:
    slots = ContainerSlots(1)
    waiting = [Container(slots, runs_already=True), Container(slots, runs_already=True), Container(slots)]
    await settle()
    for container in waiting:
        container.task.cancel()
    await asyncio.gather(*(container.task for container in waiting), return_exceptions=True)
    last = Container(slots)
    await settle()
    assert last.has_begun
    await last.end()
