"""One run of one point: begin a job, strike, look, let others finish, look again."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass, field

from tests.torture import oracles
from tests.torture.forked_processes import Child
from tests.torture.lane import Lane, Stuck
from tests.torture.scenarios import LIVE, Scenario

OUT = {"kill9", "stop", "wake"}  # modes in which the victim no longer works
OTHER = {"orchestrator": "worker", "worker": "orchestrator"}
SLACK_SECONDS = 0.4  # how long a point may still come once the job has ended
ZOMBIE_SECONDS = 25.0
TAKEOVER_SECONDS = 2.0
HARM_SECONDS = 0.3
PAUSED_SECONDS = 8.0  # so long may a victim that is woken again hold its locks
BEGIN_SECONDS = 5.0
BESIDE_SECONDS = 0.3
ENDS_OF_THE_ASKED = (0, -signal.SIGTERM)  # the latter while it has not even begun to listen to signals


@dataclass(frozen=True, order=True)
class Fault:
    """The `count`-th visit of a point. `stop` wakes the victim when all is over, `wake` in the middle,
    `pause` while it still has its locks.
    """

    name: str
    count: int
    mode: str

    def __str__(self) -> str:
        return f"{self.name}:{self.count}:{self.mode}"

    @property
    def order(self) -> str:
        return f"{self.name}:{self.count}:{'stop' if self.mode in ('wake', 'pause') else self.mode}"


@dataclass
class Run:
    """What came of it."""

    fault: Fault | None
    struck: bool = False
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    points: list[str] = field(default_factory=list)


async def crash(lane: Lane, scenario: Scenario, role: str, fault: Fault | None) -> Run:
    """Strike this role of this scenario once. Without a fault, the points it passes are recorded."""
    run, started = Run(fault), time.monotonic()
    await lane.help_with(OTHER[role])
    try:
        job = await scenario.begin(lane, scenario)
        await _strike(lane, scenario, role, run, job)
    except Stuck as stuck:
        run.violations.append(str(stuck))
    finally:
        await lane.clear()
    run.seconds = time.monotonic() - started
    return run


async def _strike(lane: Lane, scenario: Scenario, role: str, run: Run, job: str) -> None:
    fault = run.fault
    idle = PAUSED_SECONDS if fault is not None and fault.mode == "pause" else 0.3
    order = {"fault": fault and fault.order, "idle_seconds": idle, "stumbles": scenario.stumbles}
    victim = await lane.fork(role, **order, **scenario.order)
    meddling = asyncio.ensure_future(scenario.meddle(lane, job, victim))
    try:
        await _until_struck(lane, job, victim, SLACK_SECONDS if fault else 0.0)
        run.points = victim.points()
        run.violations += await oracles.at_once(lane)
        run.violations += await scenario.look_at_once(lane, job)
        if victim.stopped.is_set() or victim.ended.is_set():
            await _take_over(lane, scenario, role, run, job, victim)
        if run.violations:
            await lane.give_up(job)
            return
        await lane.ended(job)
        run.struck = any(point.startswith("!") for point in victim.points())
        await meddling
        if fault is not None and fault.mode == "stop" and run.struck:
            run.violations += await zombie_lives_on(lane, scenario, victim)
    finally:
        meddling.cancel()
    is_lost = fault is not None and (fault.mode in OUT or scenario.is_torn)
    crashes = 1 if role == "worker" and is_lost else 0
    run.violations += await oracles.in_the_end(lane, scenario, job, crashes)
    run.violations += await scenario.look(lane, job)
    run.violations += _unasked_end(run, scenario, victim)


async def _until_struck(lane: Lane, job: str, victim: Child, slack_seconds: float) -> None:
    """Return when the victim is stopped or gone, or when its job has ended without that."""
    struck = asyncio.create_task(victim.struck())
    try:
        over = asyncio.create_task(lane.ended(job))
        await asyncio.wait({struck, over}, return_when=asyncio.FIRST_COMPLETED)
        if struck.done():
            over.cancel()
        else:
            over.result()
            await asyncio.wait({struck}, timeout=slack_seconds)
    finally:
        struck.cancel()


async def _take_over(lane: Lane, scenario: Scenario, role: str, run: Run, job: str, victim: Child) -> None:
    if scenario.is_drained:
        await lane.set_gate(job, is_closed=False)
    wakes = run.fault is not None and run.fault.mode == "wake"
    if wakes and role == "worker":
        await lane.set_gate(job, is_closed=True)
    rescuer = await lane.fork(role, waits_at_gates=wakes, **scenario.order)
    if run.fault is not None and run.fault.mode == "pause":
        await _wake_beside(lane, job, victim, rescuer)
        return
    await lane.end_lease(victim)
    if wakes:
        await _wake_in_the_middle(lane, role, job, victim, rescuer)


async def _wake_beside(lane: Lane, job: str, victim: Child, rescuer: Child) -> None:
    """Wake the victim, its locks still in its hands, when the other has come as far as they let it."""
    await _passes(lane, job, rescuer, "look.held_keys", BEGIN_SECONDS)
    await _passes(lane, job, rescuer, "admit.commit.after", BESIDE_SECONDS)
    victim.resume()


async def _passes(lane: Lane, job: str, child: Child, point: str, seconds: float) -> None:
    """Wait until it has passed this point, but not for ever, nor when there is nothing left to do."""
    until = time.monotonic() + seconds
    while point not in child.points() and not await lane.is_over(job):
        if time.monotonic() >= until:
            return
        await asyncio.sleep(0.005)


async def _wake_in_the_middle(lane: Lane, role: str, job: str, victim: Child, rescuer: Child) -> None:
    """Wake the victim while the other is at its work, and give it time to do harm."""
    before = await lane.lab.rows("select seq from cograil.jobs where id = %(job)s", job=job)
    if role == "worker":
        query = "select 1 from torture.effects where job = %(job)s and pid = %(pid)s"
        await _eventually(lane, job, query, pid=rescuer.pid)
    else:
        query = "select 1 from cograil.jobs where id = %(job)s and seq > %(seq)s"
        await _eventually(lane, job, query, seq=before[0][0])
    victim.resume()
    await asyncio.sleep(HARM_SECONDS)
    await lane.set_gate(job, is_closed=False)


async def _eventually(lane: Lane, job: str, query: str, **params: object) -> None:
    """Wait for this, unless the job has ended or nothing of it is left for the other to do."""
    until = time.monotonic() + TAKEOVER_SECONDS
    while time.monotonic() < until and not await lane.is_over(job):
        if await lane.lab.rows(query, job=job, **params):
            return
        await asyncio.sleep(0.01)


async def zombie_lives_on(lane: Lane, scenario: Scenario, victim: Child) -> list[str]:
    """Alone with a new job, a process that was replaced becomes useful again; or ends, if so asked."""
    for child in lane.passing:
        if child is not victim:
            await child.kill()
            await lane.end_lease(child)
    if scenario.is_drained:
        victim.resume()
        await victim.struck_within(ZOMBIE_SECONDS)
        is_right = victim.code in ENDS_OF_THE_ASKED
        return [] if is_right else [f"asked to stop, the woken {victim.role}: {victim.code}"]
    job = await lane.submit(LIVE)
    victim.resume()
    try:
        await lane.ended(job, ZOMBIE_SECONDS)
    except Stuck as stuck:
        return [f"the woken {victim.role} does not work again: {stuck}"]
    query = "select count(*) from torture.effects where job = %(job)s"
    ((times,),) = await lane.lab.rows(query, job=job)
    return [] if times == 1 else [f"the job of the woken {victim.role} was executed {times} times"]


def _unasked_end(run: Run, scenario: Scenario, victim: Child) -> list[str]:
    """A process outlives every error, those of its first look at the database too."""
    if run.fault is None or run.fault.mode == "kill9" or scenario.is_drained or not victim.ended.is_set():
        return []
    return [f"the {victim.role} ended by itself with {victim.code}"]
