"""Sandboxes of somebody who is not root: import an image, run something, tell how it went."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from pathlib import Path

from tests.apps.containers.runtimes import IMAGE, root_file_system

from cograil.apps.containers.runtime.container_runtime import ContainerPolicy, ContainerRun
from cograil.apps.containers.runtime.sandbox import Sandbox
from cograil.apps.containers.runtime.sandbox.bwrap_arguments import owner_of_images
from cograil.apps.containers.runtime.sandbox.sandbox_images import import_image


async def main(data_dir: Path) -> None:
    import_image(data_dir / "images", IMAGE, io.BytesIO(root_file_system()), owner_of_images())
    room = data_dir / "room"
    room.mkdir()
    run = ContainerRun(
        "n", IMAGE, "id; echo x > /etc/mine && echo wrote; exit 3", room, "/workspace", 1.0, 64, {}, {}
    )
    async with Sandbox(data_dir) as sandbox:
        await sandbox.version()
        container = await sandbox.start(run, ContainerPolicy(network="none"))
        state = await sandbox.wait(container)
        lines = [text async for _, text in sandbox.lines(container, "stdout")]
        await sandbox.remove(container)
        left = os.listdir(data_dir / "sandboxes")
        report = {"user": os.getuid(), "state": state, "lines": lines, "left": left}
        print(json.dumps(report | {"shortcomings": sandbox.shortcomings}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
