"""A budget of evaluation steps that the decisions of one transaction share.

A decision usually takes a few dozen steps and is made on the event loop. A decision that takes more than
`INLINE_STEPS` is repeated in a thread, so that it does not block the loop, and a transaction makes only as
many of these as one node may cost. Another pass does the rest, after other jobs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from cograil.engine.advance import Evaluation
from cograil.model.job import Changes

INLINE_STEPS = 20_000  # a few milliseconds
MAX_INLINE_STEPS = 500_000  # for all decisions of a transaction
MIN_JOB_STEPS = 2_000  # every job gets these, whatever the others used
SOME_STEPS = 5_000  # after these, other coroutines get their turn on the event loop

_clock = time.thread_time


Advance = Callable[[str, Evaluation], Changes]  # decides the job with this id within these limits


# Keyed by whether missing outputs wait for another pass. Created once, not for each decision.
_INLINE = {defers: Evaluation(INLINE_STEPS, _clock, defers) for defers in (False, True)}
_LEAST = {defers: Evaluation(MIN_JOB_STEPS, _clock, defers) for defers in (False, True)}


class StepAllowance:
    """The evaluation steps that the decisions of one transaction share.

    `long_steps` are for decisions in a thread. Without them, a long decision waits for another pass.
    """

    def __init__(self, long_steps: int = 0) -> None:
        self._inline_left = MAX_INLINE_STEPS
        self._long_left = self._long_steps = long_steps
        self._long_jobs: set[str] = set()

    async def decide(self, job_id: str, advance: Advance, *, defers_missing: bool) -> Changes:
        """Decide the job within the steps that are left."""
        if job_id not in self._long_jobs:
            evaluations = _INLINE if self._inline_left > 0 else _LEAST
            changes = advance(job_id, evaluations[defers_missing])
            self._inline_left -= changes.steps
            if changes.steps > SOME_STEPS:
                await asyncio.sleep(0)
            if not (changes.is_cut and self._may_take_long()):
                return changes
            self._long_jobs.add(job_id)
        return await self._decide_long(job_id, advance, defers_missing)

    def _may_take_long(self) -> bool:
        return self._long_left > 0 and self._long_left >= self._long_steps // 2

    async def _decide_long(self, job_id: str, advance: Advance, defers_missing: bool) -> Changes:
        """Decide in a thread. At least one node is evaluated here; otherwise its job would never continue.

        The limit is twice that of a node, because a fan-out evaluates its source and then its first child.
        After a quarter of it no other node starts, because other jobs wait for the end of this pass.
        """
        steps = self._long_steps
        evaluation = Evaluation(2 * steps, _clock, defers_missing, soft_steps=steps // 4)
        changes = await asyncio.to_thread(advance, job_id, evaluation)
        self._long_left -= changes.steps
        return changes
