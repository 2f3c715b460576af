"""A process that starts a container and dies of SIGKILL before it could do anything else."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from tests.apps.containers.runtimes import runtime_at

from cograil.apps.containers.runtime.container_runtime import ContainerPolicy, ContainerRun


async def main(where: str, run_json: str) -> None:
    facts = json.loads(run_json)
    run = ContainerRun(**(facts | {"room": Path(facts["room"])}))
    async with runtime_at(where) as runtime:
        print(await runtime.start(run, ContainerPolicy(network="none")), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
