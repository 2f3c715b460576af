"""How the decisions of one transaction share the steps of evaluating expressions.

A decision usually takes a few dozen steps and is made on the event loop. One that takes more than
`INLINE_STEPS` is made again in a thread, so that the loop goes on, and a transaction makes only as many of
these as one node may cost. What is left goes on in another pass: other jobs come in between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from cograil.engine.advance import Evaluation
from cograil.model.job import Changes

INLINE_STEPS = 20_000  # a few milliseconds
MAX_INLINE_STEPS = 500_000  # of all decisions of a transaction
MIN_JOB_STEPS = 2_000  # every job has these, whatever the others took
SOME_STEPS = 5_000  # after these others get their turn on the event loop

_clock = time.thread_time


Advance = Callable[[str, Evaluation], Changes]  # decides for the job with this id within these limits


# By whether outputs that are missing are left for another pass. They are made once, not for each decision.
_INLINE = {defers: Evaluation(INLINE_STEPS, _clock, defers) for defers in (False, True)}
_LEAST = {defers: Evaluation(MIN_JOB_STEPS, _clock, defers) for defers in (False, True)}


class StepAllowance:
    """The steps that the decisions of one transaction have in common.

    `long_steps` are for decisions in a thread. Without them a long decision is left to others.
    """

    def __init__(self, long_steps: int = 0) -> None:
        self._inline_left = MAX_INLINE_STEPS
        self._long_left = self._long_steps = long_steps
        self._long_jobs: set[str] = set()

    async def decide(self, job_id: str, advance: Advance, *, defers_missing: bool) -> Changes:
        """What this job does, as far as the steps go."""
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
        """A node that may be evaluated at all is evaluated here: otherwise its job would never go on.

        Twice what a node may take: a fan-out evaluates its source and then its first child. After a quarter
        no other node is begun: other jobs wait for the end of this pass.
        """
        steps = self._long_steps
        evaluation = Evaluation(2 * steps, _clock, defers_missing, soft_steps=steps // 4)
        changes = await asyncio.to_thread(advance, job_id, evaluation)
        self._long_left -= changes.steps
        return changes
