"""Callers and their roles. Every route names the role that it requires."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["viewer", "submitter", "operator", "admin", "worker", "gateway", "platform"]

# A role includes the roles before it. The others are separate.
LADDER: tuple[Role, ...] = ("viewer", "submitter", "operator", "admin")
ROLES: tuple[Role, ...] = (*LADDER, "worker", "gateway", "platform")
NOBODY = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of the key of this request. The tenant comes only from the key."""

    tenant: str
    role: Role
    key_id: str = ""
    user_id: str = NOBODY
    name: str = ""

    def may(self, *roles: Role) -> bool:
        """Return whether the caller has one of these roles, or a role that includes it."""
        return any(self.role == role or _is_above(self.role, role) for role in roles)


def _is_above(role: Role, least: Role) -> bool:
    return role in LADDER and least in LADDER and LADDER.index(role) >= LADDER.index(least)
