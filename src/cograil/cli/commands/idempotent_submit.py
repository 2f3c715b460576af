"""`submit --idempotency-key`: a repeated submission returns the same job, also after one through the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import click
from pydantic import ValidationError

from cograil.cli.options import chosen_tenant
from cograil.errors import UsageError
from cograil.http.routes.job_routes import SUBMIT, NewJobBody, fingerprint
from cograil.http.server.idempotent_requests import IDEMPOTENCY_KEY, INVALID_KEY, run_idempotent_in
from cograil.model.workflow import Json
from cograil.store import job_queries
from cograil.store.database import Transaction
from cograil.verbs.idempotency import Key

Submit = Callable[[Transaction], Awaitable[str]]


async def submit_once(tx: Transaction, key: str, request: dict[str, Json], submit: Submit) -> str:
    """Submit the job, or return the id of the job that this key already created.

    Raises BadParameter for an invalid key, IdempotencyConflict when it was used for a different request.
    """
    if not IDEMPOTENCY_KEY.fullmatch(key):
        raise click.BadParameter(INVALID_KEY, param_hint="--idempotency-key")

    async def create(tx: Transaction) -> Json:
        job_id = await submit(tx)
        return (await job_queries.find_jobs(tx, [job_id], chosen_tenant()))[job_id]

    job, _ = await run_idempotent_in(tx, Key(chosen_tenant(), SUBMIT, key), fingerprint(request), create)
    return str(job["job_id"])


def build_request(
    name: str, version: int | None, inputs: dict[str, Any], options: dict[str, Any]
) -> dict[str, Json]:
    """Return the equivalent API request, so that both have the same fingerprint.

    Raises UsageError for a request that the API would reject.
    """
    not_before: datetime | None = options.get("not_before")
    fields = options | {"not_before": None if not_before is None else not_before.isoformat()}
    try:
        new = NewJobBody.model_validate(
            {"workflow_id": name, "version": version, "input_params": inputs, **fields}
        )
    except ValidationError as error:
        raise UsageError(
            "; ".join(f"{problem['loc'][0]}: {problem['msg']}" for problem in error.errors())
        ) from None
    return new.model_dump(mode="json")
