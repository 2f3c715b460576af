"""Companies: how many are asked for in a second, of registers that answer at once, and how many looked at."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Sequence

from bench.containers import environment
from bench.engine import ALIVE, Bench, process
from bench.figures import Figures
from bench.http import Line, api, free_port, served

SIRENS = itertools.count(100_000_000)


async def measure(bench: Bench, companies: int, reads: int) -> Figures:
    """Enrichments a second, each with three sources; then reads and requests of what is known."""
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    variables = {
        "COGRAIL_OUTBOUND__ALLOW_NETWORKS": "127.0.0.0/8",
        "COGRAIL_COMPANIES__RECHERCHE_URL": base,
        "COGRAIL_COMPANIES__RECHERCHE_PER_SECOND": "100000",
        "COGRAIL_COMPANIES__INPI_URL": base,
        "COGRAIL_COMPANIES__INPI_USERNAME": "bench",
        "COGRAIL_COMPANIES__INPI_PASSWORD": "bench",
        "COGRAIL_COMPANIES__RCS_URL": base,
        "COGRAIL_COMPANIES__RCS_TOKEN": "bench",
        "COGRAIL_COMPANIES__SYNC_SECONDS": "30",
    }
    with environment(variables):
        async with served(["bench.registers", str(port)], port), api(bench) as lines:
            with process("worker", bench.conninfo):
                await bench.until(ALIVE, 1, kind="worker")
                return await _measure(lines, companies, reads)


async def _measure(lines: Sequence[Line], companies: int, reads: int) -> Figures:
    ids: list[str] = []

    async def enrich(line: Line) -> None:
        ids.append(await _ask(line, str(next(SIRENS))))

    await _per_second(lines, enrich, len(lines))  # the first ones find everything cold
    enrichments = await _per_second(lines, enrich, companies)
    known = itertools.cycle(ids)

    async def look(line: Line) -> None:
        status, answer = await line.ask("GET", f"/v1/requests/{next(known)}")
        assert status == 200, answer

    async def again(line: Line) -> None:
        await _ask(line, "100000000")

    return {
        "enrichments_per_s": round(enrichments, 1),
        "company_reads_per_s": round(await _per_second(lines, look, reads)),
        "company_cached_requests_per_s": round(await _per_second(lines, again, reads // 4)),
    }


async def _ask(line: Line, siren: str) -> str:
    status, answer = await line.ask("POST", "/v1/requests", json.dumps({"siren": siren}).encode())
    assert status == 201, answer
    request = json.loads(answer)["request"]
    assert request["enrichment_status"] == "SUCCESS", answer
    return str(request["id"])


async def _per_second(lines: Sequence[Line], ask: Callable[[Line], Awaitable[None]], count: int) -> float:
    left = iter(range(count))

    async def work(line: Line) -> None:
        for _ in left:
            await ask(line)

    began = time.perf_counter()
    await asyncio.gather(*(work(line) for line in lines))
    return count / (time.perf_counter() - began)
