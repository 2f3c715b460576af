"""What a submit over HTTP is measured beside: servers that take the same POST, and do nothing with it.

`plain` is Starlette on the same web server: the model in, the model out. `same` is `cograil server`
itself, with its protocol, its door (framing, keys, roles, strict JSON) and the model, answering at
once: a submit differs from it by the engine and the commit.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cograil.http.routes.job_routes import NewJobBody
from cograil.http.server.application import application
from cograil.http.server.dispatcher import Call
from cograil.http.server.port import bind, serving
from cograil.http.server.routing import Router
from cograil.processes.api_server import open_api
from cograil.settings import Settings

bare = Router("bare")


@bare.post("/jobs", "submitter", body=NewJobBody, responses={202: "what was given"})
async def answer_at_once(call: Call) -> Response:
    """Answer with what was given."""
    return Response(call.body.model_dump_json(), 202, media_type="application/json")


async def submit(request: Request) -> Response:
    """Read the body with the API's model, and answer with it."""
    job = NewJobBody.model_validate_json(await request.body())
    return Response(job.model_dump_json(), 202, media_type="application/json")


async def serve_plain(port: int) -> None:
    """Until killed."""
    app = Starlette(routes=[Route("/api/v1/jobs", submit, methods=["POST"])])
    async with serving(app, bind("127.0.0.1", port)):
        await asyncio.Event().wait()


async def serve_same(port: int, conninfo: str) -> None:
    """Until killed."""
    async with (
        open_api(conninfo, Settings(port=port)) as instance,
        serving(application(instance, [], [bare]), bind("127.0.0.1", port)),
    ):
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(
        serve_plain(int(sys.argv[1])) if len(sys.argv) == 2 else serve_same(int(sys.argv[1]), sys.argv[2])
    )
