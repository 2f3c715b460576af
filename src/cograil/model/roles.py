"""Who calls, and what they may do. A route names the least role it needs; a route without a role does not exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["viewer", "submitter", "operator", "admin", "worker", "gateway", "platform"]

# A role may do what the roles before it may. The others stand apart.
LADDER: tuple[Role, ...] = ("viewer", "submitter", "operator", "admin")
ROLES: tuple[Role, ...] = (*LADDER, "worker", "gateway", "platform")
NOBODY = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of the key of this request. The tenant comes from the key and from nowhere else."""

    tenant: str
    role: Role
    key_id: str = ""
    user_id: str = NOBODY
    name: str = ""

    def may(self, *roles: Role) -> bool:
        """Whether one of these roles is theirs, or one below theirs."""
        return any(self.role == role or _is_above(self.role, role) for role in roles)


def _is_above(role: Role, least: Role) -> bool:
    return role in LADDER and least in LADDER and LADDER.index(role) >= LADDER.index(least)
