"""`submit --idempotency-key`: a repeated submission returns the same job, also after one through the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

import click
from pydantic import ValidationError

from cograil.cli.backends.interface import JobRequest
from cograil.errors import UsageError
from cograil.http.routes.job_routes import SUBMIT, NewJobBody, fingerprint
from cograil.http.server.idempotent_requests import IDEMPOTENCY_KEY, INVALID_KEY, run_idempotent_in
from cograil.model.workflow import Json
from cograil.store import job_queries
from cograil.store.database import Transaction
from cograil.verbs.idempotency import Key

Submit = Callable[[Transaction], Awaitable[str]]


async def submit_once(
    tx: Transaction, tenant: str, key: str, request: dict[str, Json], submit: Submit
) -> str:
    """Submit the job, or return the id of the job that this key already created.

    Raises IdempotencyConflict when the key was used for a different request.
    """

    async def create(tx: Transaction) -> Json:
        job_id = await submit(tx)
        return (await job_queries.find_jobs(tx, [job_id], tenant))[job_id]

    job, _ = await run_idempotent_in(tx, Key(tenant, SUBMIT, key), fingerprint(request), create)
    return str(job["job_id"])


def build_request(request: JobRequest) -> dict[str, Json]:
    """Return the equivalent API request, so that both have the same fingerprint.

    Raises UsageError for a request that the API would reject.
    """
    not_before: datetime | None = request.attributes.get("not_before")
    times = {"not_before": None if not_before is None else not_before.isoformat()}
    fields = {"workflow_id": request.workflow_id, "version": request.version, "input_params": request.inputs}
    try:
        new = NewJobBody.model_validate(fields | dict(request.attributes) | times)
    except ValidationError as error:
        raise UsageError(
            "; ".join(f"{problem['loc'][0]}: {problem['msg']}" for problem in error.errors())
        ) from None
    return new.model_dump(mode="json")


def check_key(key: str) -> None:
    """Raise BadParameter for text that is not an idempotency key."""
    if not IDEMPOTENCY_KEY.fullmatch(key):
        raise click.BadParameter(INVALID_KEY, param_hint="--idempotency-key")
