"""Select the container runtime: the configured one, or the first available one."""

from __future__ import annotations

from typing import NamedTuple

from cograil.apps.containers.runtime.container_runtime import EngineError, Runtime
from cograil.apps.containers.runtime.docker_engine import ContainerEngine, engine_urls
from cograil.apps.containers.runtime.sandbox import Sandbox
from cograil.apps.containers.settings import ContainerSettings
from cograil.settings import Settings


class RuntimeChoice(NamedTuple):
    """The chosen runtime, if any, and a sentence that says why."""

    runtime: Runtime | None
    why: str


async def choose_runtime(settings: Settings) -> RuntimeChoice:
    """Choose the runtime of this machine. The caller closes it (`async with`)."""
    setting = settings.section(ContainerSettings).runtime
    if setting == "none":
        return RuntimeChoice(None, "containers do not run here: COGRAIL_CONTAINERS__RUNTIME is none")
    engine = sandbox = RuntimeChoice(None, "")
    if setting in ("auto", "docker"):
        engine = await _engine()
        if engine.runtime is not None:
            return engine
    if setting in ("auto", "sandbox"):
        sandbox = await _sandbox(settings)
    reasons = "; ".join(choice.why for choice in (engine, sandbox) if choice.why)
    if sandbox.runtime is not None:
        return RuntimeChoice(sandbox.runtime, reasons)
    return RuntimeChoice(None, f"containers do not run here: {reasons}")


async def _engine() -> RuntimeChoice:
    """The first engine that responds."""
    refusals = []
    for url in engine_urls():
        try:
            engine = ContainerEngine(url)
        except EngineError as error:
            refusals.append(str(error))
            continue
        try:
            return RuntimeChoice(engine, f"containers run on {await engine.version()} at {url}")
        except BaseException as error:  # also when cancelled
            await engine.__aexit__()
            if not isinstance(error, EngineError):
                raise
            refusals.append(f"{url} does not answer")
    return RuntimeChoice(
        None, "; ".join(refusals) or "no container engine was found, by DOCKER_HOST or at a usual socket"
    )


async def _sandbox(settings: Settings) -> RuntimeChoice:
    sandbox = Sandbox(settings.data_dir)
    try:
        return RuntimeChoice(sandbox, f"containers run in sandboxes of {await sandbox.version()}")
    except EngineError as error:
        return RuntimeChoice(None, str(error))
