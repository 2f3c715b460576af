"""How much of an index was read."""

from __future__ import annotations

from tests.support.harness import Harness


async def entries(harness: Harness, index: str) -> int:
    """How many entries of this index were read so far, by the one session of this harness."""
    await harness.rows("select pg_stat_force_next_flush()")
    ((read,),) = await harness.rows(f"select pg_stat_get_tuples_returned('cograil.{index}'::regclass)")
    return int(read)
