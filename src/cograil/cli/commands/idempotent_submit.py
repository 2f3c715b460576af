"""`submit --idempotency-key`: asked twice, done once, also when it was asked over the API before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import click
from pydantic import ValidationError

from cograil.cli.options import chosen_tenant
from cograil.errors import UsageError
from cograil.http.routes.job_routes import SUBMIT, NewJob, fingerprint
from cograil.http.server.idempotent_requests import IDEMPOTENCY_KEY, INVALID_KEY, run_idempotent_in
from cograil.model.workflow import Json
from cograil.store import job_queries
from cograil.store.database import Transaction
from cograil.verbs.idempotency import Key

Submit = Callable[[Transaction], Awaitable[str]]


async def submit_once(tx: Transaction, key: str, request: dict[str, Json], submit: Submit) -> str:
    """The job of this request.

    Raises BadParameter for what is no key, IdempotencyConflict when it was used with another request.
    """
    if not IDEMPOTENCY_KEY.fullmatch(key):
        raise click.BadParameter(INVALID_KEY, param_hint="--idempotency-key")

    async def make(tx: Transaction) -> Json:
        job_id = await submit(tx)
        return (await job_queries.find_jobs(tx, [job_id], chosen_tenant()))[job_id]

    job, _ = await run_idempotent_in(tx, Key(chosen_tenant(), SUBMIT, key), fingerprint(request), make)
    return str(job["job_id"])


def request_of(
    name: str, version: int | None, inputs: dict[str, Any], words: dict[str, Any]
) -> dict[str, Json]:
    """What the API would have been sent, so that both know the same request by the same fingerprint.

    Raises UsageError for what it would not take.
    """
    moment: datetime | None = words.get("not_before")
    said = words | {"not_before": None if moment is None else moment.isoformat()}
    try:
        new = NewJob.model_validate({"workflow_id": name, "version": version, "input_params": inputs, **said})
    except ValidationError as error:
        raise UsageError("; ".join(f"{one['loc'][0]}: {one['msg']}" for one in error.errors())) from None
    return new.model_dump(mode="json")
