"""How much work expressions may cause, counted in steps.

A step is about what it takes to compare two numbers (0.1 to 0.2 microseconds). Steps are counted and not
timed, so that a decision about a job stays a pure function. A clock may be handed in as a backstop, for
work that the count gets wrong.

Two limits apply at the same time. A *node* that needs too many steps fails with `expression_too_costly`.
A *pass* over a job that has used up its allowance stops before the next node, and another pass goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from cograil.model.workflow import Json, RenderError

MAX_NODE_STEPS = 1_000_000
MAX_NODE_SECONDS = 2.0
MAX_SHOWN_CHARACTERS = 200
STEPS_BETWEEN_CLOCK_READS = 50_000
MIN_INDEXED_MEMBERS = 16
MAX_INDEXES = 64
UNLIMITED_STEPS = sys.maxsize

_STEPS_PER_CANDIDATE = 2
PLAIN_TYPES = frozenset((str, int, float, type(None)))  # values that Python compares as JSON does

Clock = Callable[[], float]


class AllowanceSpent(Exception):
    """This pass has no steps left for the job. The node it was at is evaluated again in another pass."""


class ExpressionTooCostly(RenderError):
    """The expressions of one node need more steps or time than a node may have."""

    def __init__(self, limit: str, expression: str = "", node_id: str = "") -> None:
        self.limit = limit
        self.expression = expression
        where = f"node {node_id}: " if node_id else ""
        what = f"`{_shortened(expression)}`" if expression else "the expression"
        super().__init__(
            "expression_too_costly",
            f"{where}{what} needs more than {limit}, which is all that one node may use; "
            "compare smaller values, or do this in a task",
        )

    def located(self, expression: str = "", node_id: str = "") -> ExpressionTooCostly:
        """The same error, with the expression and the node that caused it; what is known already stays."""
        return ExpressionTooCostly(self.limit, self.expression or expression, node_id)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "..."


class Equal(Protocol):
    """Whether two values are the same; counts what that takes."""

    def __call__(self, budget: Budget, left: Json, right: Json) -> bool: ...


class Budget:
    """Counts the steps of one pass over one job, and of each node in it.

    `allowance` None leaves the pass unlimited; `node_steps` always applies. From `soft_allowance` on no other
    node is begun, while the one at hand may go on. `used` counts all steps.
    """

    __slots__ = (
        "_allowance",
        "_clock",
        "_indexes",
        "_node_end",
        "_node_seconds",
        "_node_started_at",
        "_node_steps",
        "_soft_allowance",
        "_stop",
        "used",
    )

    def __init__(
        self,
        allowance: int | None = None,
        node_steps: int = MAX_NODE_STEPS,
        *,
        node_seconds: float = MAX_NODE_SECONDS,
        clock: Clock | None = None,
        soft_allowance: int | None = None,
    ) -> None:
        self.used = 0
        self._allowance = UNLIMITED_STEPS if allowance is None else allowance
        self._soft_allowance = self._allowance if soft_allowance is None else soft_allowance
        self._node_steps = node_steps
        self._node_seconds = node_seconds
        self._clock = clock
        self._indexes: dict[int, _Index] | None = None
        self._node_end = node_steps
        self._node_started_at: float | None = None
        self._set_stop()

    @property
    def is_spent(self) -> bool:
        """Whether this pass should not begin another node."""
        return self.used >= self._soft_allowance

    def begin_node(self) -> None:
        """From here on the steps are those of another node."""
        self._node_end = self.used + self._node_steps
        self._node_started_at = None
        self._set_stop()

    def begin_next_node(self) -> bool:
        """Begin another node, as `begin_node` does. False, and nothing changes, when this pass should not."""
        if self.used >= self._soft_allowance:
            return False
        if self.used + self._node_steps != self._node_end:
            self.begin_node()
        return True

    def spend(self, steps: int) -> None:
        """Count these steps. Raises ExpressionTooCostly or AllowanceSpent."""
        self.used += steps
        if self.used > self._stop:
            self._check_limits()

    def contains(self, members: list[Json], member: Json, equal: Equal) -> bool:
        """Whether a list has this member. A long list is indexed once and then looked up in."""
        if len(members) < MIN_INDEXED_MEMBERS:
            return self._finds(members, member, equal)
        index = self._index_of(members)
        if isinstance(member, list | dict):
            return self._finds(index.compounds, member, equal)
        self.spend(1)
        return _key_of(member) in index.keys

    def _finds(self, members: list[Json], member: Json, equal: Equal) -> bool:
        self.spend(_STEPS_PER_CANDIDATE * len(members))
        return any(equal(self, member, candidate) for candidate in members)

    def _index_of(self, members: list[Json]) -> _Index:
        if self._indexes is None:
            self._indexes = {}
        index = self._indexes.get(id(members))
        if index is None:
            self.spend(len(members))
            if len(self._indexes) >= MAX_INDEXES:
                self._indexes.clear()
            index = self._indexes[id(members)] = _Index(members)
        return index

    def _check_limits(self) -> None:
        if self.used > self._node_end:
            raise ExpressionTooCostly(f"{self._node_steps:,} steps")
        if self.used > self._allowance:
            raise AllowanceSpent
        assert self._clock is not None  # the only other reason to stop
        now = self._clock()
        if self._node_started_at is None:
            self._node_started_at = now
        if now - self._node_started_at > self._node_seconds:
            raise ExpressionTooCostly(f"{self._node_seconds:g} seconds")
        self._set_stop()

    def _set_stop(self) -> None:
        """The count at which to look again."""
        stop = min(self._node_end, self._allowance)
        if self._clock is not None:
            stop = min(stop, self.used + STEPS_BETWEEN_CLOCK_READS)
        self._stop = stop


class _Index:
    """The members of a list by value. It keeps the list, so that its id is not used for another one."""

    __slots__ = ("compounds", "keys", "members")

    def __init__(self, members: list[Json]) -> None:
        self.members = members
        if PLAIN_TYPES.issuperset(map(type, members)):
            self.keys: frozenset[Any] = frozenset(members)
            self.compounds: list[Json] = []
        else:
            self.keys = frozenset(_key_of(one) for one in members if not isinstance(one, list | dict))
            self.compounds = [one for one in members if isinstance(one, list | dict)]


def _key_of(value: Json) -> Any:
    """What stands for a plain value in an index: true is not 1, and 1 is 1.0."""
    return (value,) if isinstance(value, bool) else value
