"""A client that requests the pages as a browser does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from urllib.parse import urlencode

from tests.support.api_client import ApiClient, ApiResponse

from cograil.http.server.routing import Router
from cograil.model.roles import LADDER, Caller

HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


class PageClient:
    """Keeps cookies and follows no redirects."""

    def __init__(self, api: ApiClient) -> None:
        self.api = api
        self.cookies: dict[str, str] = {}

    async def get(self, path: str, **headers: str) -> ApiResponse:
        return await self._send("GET", path, b"", headers)

    async def post(self, path: str, fields: dict[str, str], **headers: str) -> ApiResponse:
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return await self._send("POST", path, urlencode(fields).encode(), kind | headers)

    async def token(self, path: str) -> str:
        """The token of the forms of this page."""
        return form_token(await self.get(path))

    async def login(self, key: str, place: str = "/ui/") -> ApiResponse:
        return await self.post(
            "/ui/login", {"token": await self.token("/ui/login"), "key": key, "next": place}
        )

    async def _send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> ApiResponse:
        sent = {"host": f"localhost:{self.api.port}", "connection": "close", **HTML}
        sent |= {"content-length": str(len(body))} | {
            name.replace("_", "-"): text for name, text in headers.items()
        }
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {text}\r\n" for name, text in sent.items())
        answer = await self.api.raw(head.encode() + b"\r\n" + body)
        if made := answer.headers.get("set-cookie"):
            name, _, rest = made.partition("=")
            self.cookies[name] = rest.partition(";")[0].strip('"')
        return answer


def form_token(page: ApiResponse) -> str:
    match = re.search(rb'name="token" value="([0-9a-f]+)"', page.raw)
    assert match is not None, page.raw[:500]
    return match[1].decode()


async def check_required_roles(browser: PageClient, tables: Sequence[Router]) -> None:
    """Every page and every form of these is refused to every role below its own, and to no other."""
    for role in LADDER:
        browser.cookies.clear()
        await browser.login(await browser.api.make_key(role))
        for endpoint in (
            endpoint for table in tables for endpoint in table.endpoints if not endpoint.is_stream
        ):
            path = re.sub(r"{(\w+)}", "none", endpoint.path)
            send = browser.get if endpoint.method == "GET" else partial(browser.post, fields={})
            answer = await send(path)
            is_refused = answer.status == 403 and b"this requires the role" in answer.raw
            assert is_refused != Caller("default", role).may(*endpoint.requires), (role, endpoint.path)
            assert answer.status < 500, (role, endpoint.path)
