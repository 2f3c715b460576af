"""The simulation with many more seeds: COGRAIL_SEEDS of them, from COGRAIL_FIRST_SEED on."""

from __future__ import annotations

import os

import pytest
from tests.support.simulation.simulator import print_rate, run_all

SEEDS = int(os.environ.get("COGRAIL_SEEDS", "200000"))
FIRST = int(os.environ.get("COGRAIL_FIRST_SEED", "1000000"))
PARTS = 20


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_seed_breaks_the_engine(part: int) -> None:
    seeds = range(FIRST + part, FIRST + SEEDS, PARTS)
    with print_rate(len(seeds)):
        run_all(seeds)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_no_seed_breaks_the_engine_when_news_come_twice() -> None:
    run_all(range(FIRST, FIRST + SEEDS // 10), echoes=True)
