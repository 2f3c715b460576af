"""One attempt to run a container: fetch what goes in, run it, tell what it says, put what comes out.

Every phase that is through is kept with what was told of it, so an attempt that takes over goes on where the
last one was: it finds the container by its labels, reads the log on, and moves no file twice. Who is given
back or lost leaves the container alone: the next attempt takes it up, or the sweeper removes it with its job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import orjson

from cograil import clock
from cograil.apps.containers.runtime.artifact_transfer import ArtifactTransfer
from cograil.apps.containers.runtime.container_artifacts import SUCCESS, Done, move, not_run, out_of_reach
from cograil.apps.containers.runtime.container_checkpoint import KILLED, NEVER_RAN, Exit, read_checkpoint
from cograil.apps.containers.runtime.container_log import follow_log
from cograil.apps.containers.runtime.container_runtime import (
    STOP_SECONDS,
    ContainerLogCursor,
    ContainerPolicy,
    ContainerRun,
    ContainerState,
    EngineError,
    LogStream,
    Runtime,
)
from cograil.apps.containers.runtime.container_slots import ContainerSlots
from cograil.apps.containers.runtime.container_workspaces import ContainerWorkspaces
from cograil.egress import OutboundGuard
from cograil.model.artifact_plan import make_plan
from cograil.model.container_spec import JOB, Artifact, ContainerBody
from cograil.model.workflow import Json
from cograil.runners.context import Context, Fail, Retry

RETRY_SECONDS = 0.5
MAX_KEPT_CONTENT = 256 * 1024
PREFIX = "orchestrator.job."
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ContainerTools:
    """What the attempts of one worker share."""

    engine: Runtime
    rooms: ContainerWorkspaces
    guard: OutboundGuard
    policy: ContainerPolicy
    slots: ContainerSlots
    is_to_sweep: asyncio.Event  # there may be a container that nobody needs


class ContainerAttempt:
    """One attempt. With a `name`, its caller's, events are told under it; else its log is the attempt's."""

    def __init__(self, ctx: Context, body: ContainerBody, name: str | None, tools: ContainerTools) -> None:
        self._ctx = ctx
        self._body = body
        self._name = name
        self._tools = tools
        self._plan = make_plan(body.artifacts)
        self._facts = read_checkpoint(ctx.checkpoint_data, tools.rooms.place, is_end_final=name is not None)
        self._room = f"{ctx.job_id}.{ctx.node_id}.{self._facts.run}"
        self._is_final = False  # it cannot be started, however often one tries
        self._telling = asyncio.Lock()  # what is kept is what was told, in this order

    async def run(self) -> dict[str, Json]:
        """The phases, each passed once. Raises Fail or Retry for an end that is none."""
        try:
            await self._get_to_exit()
            await self._remove_container()
            await self._put_outputs()
        except asyncio.CancelledError:
            if self._ctx.reason == "timeout":  # of the node: what runs now is of no more use
                await asyncio.shield(self._give_up())
            raise
        finally:
            if self._ctx.reason == "lost":
                self._tools.is_to_sweep.set()
        await self._remove_room()
        return await self._conclude()

    # -- phases --------------------------------------------------------------------------------------

    async def _get_to_exit(self) -> None:
        facts = self._facts
        if facts.exit is not None:
            return
        if facts.container is not None:  # never started again; and it runs, whether there is a slot or not
            async with self._tools.slots.one(runs_already=True):
                await self._follow(facts.container)
            return
        mover = await self._mover()
        for artifact in self._plan.before:
            if artifact.id not in facts.done and not await self._move(artifact, mover):
                error = f"the artifact {artifact.id!r} failed: {facts.done[artifact.id]['error']}"
                await self._tell_exit(Exit(NEVER_RAN, "input_failed", error))
                return
        async with self._tools.slots.one():
            if container := await self._start():
                await self._follow(container)

    async def _start(self) -> str | None:
        """The container; None when it cannot be started, which is told."""
        facts, tools = self._facts, self._tools
        try:
            container = await self._patiently(lambda: tools.engine.start(self._wanted(), tools.policy))
        except EngineError as error:
            self._is_final = error.is_final and error.code == "image_not_found"
            await self._tell_exit(Exit(NEVER_RAN, error.code, str(error)))
            return None
        facts.container, facts.started_at = container, clock.seconds()
        await self._tell("start", {})
        return container

    async def _follow(self, container: str) -> None:
        """Until it has ended and all it said is told."""
        facts, ended = self._facts, asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(
                follow_log(self._tools.engine, container, facts.log_place, self._tell_log, ended)
            )
            state = await self._end(container)
            ended.set()
        await self._tell_exit(self._exit_of(state))

    async def _end(self, container: str) -> ContainerState | None:
        """How it ended; one that runs for too long is stopped. What ended while nobody looked is not late."""
        facts = self._facts
        if not facts.is_late:
            try:
                async with asyncio.timeout(facts.started_at + self._body.seconds - clock.seconds()):
                    return await self._ended(container)
            except TimeoutError:
                if not await self._is_running(container):
                    return await self._ended(container)
            async with self._telling:  # before it is stopped, or who takes over takes that for its own end
                facts.is_late = True
                await self._ctx.checkpoint(facts.as_json(), phase=facts.phase)
        await self._stop(container)
        return await self._ended(container)

    async def _put_outputs(self) -> None:
        """What comes after the container; that it fails changes nothing of how it ended."""
        facts = self._facts
        if facts.is_complete:
            return
        if facts.container is not None:
            is_here = facts.place == self._tools.rooms.place
            mover = await self._mover() if is_here else None
            for artifact in self._plan.after:
                if artifact.id not in facts.done:
                    await self._move(artifact, mover)
            facts.is_complete = True
            await self._tell("complete", {})

    async def _conclude(self) -> dict[str, Json]:
        """The output of the node; or what it fails with, and then the next attempt begins anew."""
        facts = self._facts
        assert facts.exit is not None
        output: dict[str, Json] = {"exitCode": facts.exit.code, "artifacts": facts.done}
        if not facts.exit.kind:
            return output
        message = facts.exit.error or f"the container ended with exit code {facts.exit.code}"
        if self._name is not None or self._is_final:
            raise Fail(message, code=facts.exit.kind, details=output)
        await self._ctx.checkpoint({"run": facts.run + 1}, phase="again")
        raise Retry(message, code=facts.exit.kind, details=output)

    # -- files ---------------------------------------------------------------------------------------

    async def _mover(self) -> ArtifactTransfer:
        room = await asyncio.to_thread(self._tools.rooms.make, self._room)
        return ArtifactTransfer(room, self._tools.guard)

    async def _move(self, artifact: Artifact, mover: ArtifactTransfer | None) -> bool:
        """Move it and tell so; whether it went well. Without a mover its workspace is out of reach."""
        facts = self._facts
        before = facts.done.get(artifact.depends or "", {"status": SUCCESS})
        is_free = artifact.depends in (None, JOB) or before["status"] == SUCCESS
        if not is_free:
            done = not_run(artifact)
        else:
            done = out_of_reach() if mover is None else await move(artifact, mover, self._ctx.log.warning)
        facts.done[artifact.id] = self._kept(done)
        await self._tell("artifact", {"artifactId": artifact.id, "artifactType": artifact.type, **done})
        return bool(done["status"] == SUCCESS)

    def _kept(self, done: Done) -> Done:
        """What the output of a node has of it; contents only as far as there is room."""
        if "content" not in done:
            return done
        size = sum(len(orjson.dumps(result)) for result in self._facts.done.values())
        has_room = self._name is None and size + len(orjson.dumps(done)) <= MAX_KEPT_CONTENT
        return done if has_room else {"status": done["status"], "isContentLeftOut": True}

    # -- the container -------------------------------------------------------------------------------

    def _wanted(self) -> ContainerRun:
        ctx, body, facts = self._ctx, self._body, self._facts
        return ContainerRun(
            name=f"cograil-{ctx.job_id}-{ctx.node_id}-{facts.run}",
            image=body.image,
            command=body.command,
            room=self._tools.rooms.make(self._room),
            mount=body.workspace,
            cpus=body.cpus,
            memory_mb=body.memory_mb,
            environment=_trace_of(ctx) | body.environment,
            labels=labels_of(facts.place, ctx.job_id, ctx.node_id, facts.run),
        )

    async def _ended(self, container: str) -> ContainerState | None:
        """How it ended, when it has; None when somebody removed it."""
        try:
            return await self._patiently(lambda: self._tools.engine.wait(container))
        except EngineError:
            return None

    async def _is_running(self, container: str) -> bool:
        try:
            return (await self._patiently(lambda: self._tools.engine.state(container))).is_running
        except EngineError:
            return False

    async def _stop(self, container: str) -> None:
        try:
            await self._patiently(lambda: self._tools.engine.stop(container, STOP_SECONDS))
        except EngineError as error:
            if error.code != "not_found":
                raise

    async def _remove_container(self) -> None:
        """Its end and all it said are recorded: nobody needs it any more. If that fails, the sweeper will."""
        if self._facts.container is not None and not self._facts.is_complete:
            try:
                await self._tools.engine.remove(self._facts.container)
            except EngineError as error:
                self._ctx.log.warning("the container is removed later", why=str(error))

    async def _remove_room(self) -> None:
        """What cannot be removed now, such as files of another user, is left to the sweeper."""
        try:
            await asyncio.to_thread(self._tools.rooms.remove, self._room)
        except OSError as error:
            self._ctx.log.warning("the workspace is removed later", why=str(error))

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What the engine answers; one that does not is asked until it does. Raises EngineError otherwise."""
        while True:
            try:
                return await ask()
            except EngineError as error:
                if error.code != "engine_unreachable":
                    raise
                self._ctx.progress(0, message=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    def _exit_of(self, state: ContainerState | None) -> Exit:
        body = self._body
        if self._facts.is_late:
            return Exit(KILLED, "timeout", f"timeout: it ran for more than {body.seconds} s and was stopped")
        if state is None:
            return Exit(KILLED, "container_gone", "the container was removed while it ran")
        if state.is_out_of_memory:
            return Exit(state.exit_code, "out_of_memory", f"out of memory: it had {body.memory_mb} MiB")
        if state.exit_code == KILLED:  # not by us; some engines do not say why
            error = f"killed, most likely out of memory: it had {body.memory_mb} MiB"
            return Exit(KILLED, "out_of_memory", error)
        return Exit(state.exit_code, "exit_code" if state.exit_code else "")

    async def _give_up(self) -> None:
        await self._remove_container()
        if self._facts.exit is None and self._name is not None:
            error = "timeout: all of it took too long"
            await self._tell_exit(Exit(KILLED, "timeout", error))
        elif self._name is None:
            await self._ctx.checkpoint({"run": self._facts.run + 1}, phase="again")

    # -- telling -------------------------------------------------------------------------------------

    async def _tell_exit(self, exit_: Exit) -> None:
        self._facts.exit = exit_
        data: dict[str, Json] = {"exitCode": exit_.code}
        await self._tell("exit", data if exit_.error is None else data | {"error": exit_.error})

    async def _tell_log(self, stream: LogStream, lines: list[str], place: ContainerLogCursor) -> None:
        async with self._telling:
            self._facts.logs[stream] = place
            if self._name is None:
                for line in lines:
                    self._ctx.log.info(line, stream=stream)
            await self._say("log", {"lines": lines, "stream": stream})

    async def _tell(self, kind: str, data: dict[str, Json]) -> None:
        async with self._telling:
            await self._say(kind, data)

    async def _say(self, kind: str, data: dict[str, Json]) -> None:
        """Tell it and keep what is known now, both or neither."""
        checkpoint, phase = self._facts.as_json(), self._facts.phase
        if self._name is None:
            await self._ctx.checkpoint(checkpoint, phase=phase)
            return
        event = {"jobId": self._name, **data, "meta": self._body.meta}
        await self._ctx.tell(PREFIX + kind, event, subject=self._name, checkpoint=checkpoint, phase=phase)


def _trace_of(ctx: Context) -> dict[str, str]:
    """By which a program inside knows to which trace it belongs."""
    return {} if ctx.trace_parent is None else {"TRACEPARENT": ctx.trace_parent}


def labels_of(place: str, job_id: str, node_id: str, run: int) -> dict[str, str]:
    """By which a container is found again."""
    return {
        "cograil.place": place,
        "cograil.job": job_id,
        "cograil.node": node_id,
        "cograil.run": str(run),
    }
