"""The three registers as a process of their own, which answer at once: `python -m bench.registers PORT`."""

from __future__ import annotations

import asyncio
import sys

from tests.apps.companies.registers import Registers


async def serve(port: int) -> None:
    """Answer until killed."""
    registers = Registers()
    server = await asyncio.start_server(registers.serve, "127.0.0.1", port)
    async with server:
        while True:
            await asyncio.sleep(1)
            registers.requests.clear()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
