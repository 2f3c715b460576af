"""The tasks of a database by their states, and the admission of held ones."""

from __future__ import annotations

from collections import Counter

from tests.support.harness import Harness, admit_now

from cograil.verbs.limits import Admission


async def let_go(harness: Harness) -> Admission:
    async with harness.db.transaction("admit") as tx:
        return await admit_now(tx)


async def states(harness: Harness) -> Counter[str]:
    return Counter(
        {
            state: count
            for state, count in await harness.rows("select state, count(*) from cograil.tasks group by 1")
        }
    )
