"""The reference of the API as a page, generated from its OpenAPI document; it loads nothing from other
sites.
"""

from __future__ import annotations

import orjson
from starlette.responses import Response

from cograil.ui.api_reference import api_document, api_reference
from cograil.ui.page_context import HTML, PageRequest, pages
from cograil.ui.rendering import page

reference_pages = pages("reference")


@reference_pages.get("/docs", "viewer", media_type=HTML)
async def show_reference(request: PageRequest) -> Response:
    """Show all routes of the API with their parameters and responses."""
    return page(request, "reference.html", groups=api_reference())


@reference_pages.get("/docs/openapi.json", "viewer")
async def show_document(request: PageRequest) -> Response:
    """Return the OpenAPI document, for a visitor who is logged in."""
    return Response(orjson.dumps(api_document(), option=orjson.OPT_INDENT_2), media_type="application/json")
