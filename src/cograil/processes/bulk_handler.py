"""The handler of bulk operations. It is here because handlers import neither verbs nor the store."""

from __future__ import annotations

from cograil.errors import NotFound
from cograil.model.workflow import Json
from cograil.runners.context import Context, Fail
from cograil.runners.handler_registry import Registry
from cograil.settings import Settings
from cograil.store.database import Database

HANDLER = "cograil.bulk"


def register_bulk(registry: Registry, db: Database, settings: Settings) -> None:
    """Register the handler for the workers of this registry, with this database."""

    async def bulk(ctx: Context, operation: str) -> dict[str, Json]:
        """Process the jobs of the operation, a few in each transaction, until it is over."""
        return await _step_through(ctx, operation, db, settings)

    registry.register(bulk, HANDLER)


async def _step_through(ctx: Context, operation: str, db: Database, settings: Settings) -> dict[str, Json]:
    from cograil.processes.instance_discovery import make_engine_context  # noqa: PLC0415  other workers never decide
    from cograil.verbs.bulk import outcome_of, step_bulk  # noqa: PLC0415

    engine_context = make_engine_context(settings)
    while True:
        ctx.raise_if_cancelled()
        try:
            async with db.transaction("bulk") as tx:
                progress = await step_bulk(tx, engine_context, operation, ctx.job_id)
        except NotFound as error:
            raise Fail(str(error), code=error.code) from error
        summary = f"{progress.done} done, {progress.failed} failed, {progress.skipped} skipped"
        ctx.progress(progress.ended, progress.total, summary)
        if progress.finished_at is not None or not progress.is_wanted:
            return outcome_of(progress)
