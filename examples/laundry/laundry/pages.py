"""/ui/laundry: the loads of the visitor's tenant."""

from __future__ import annotations

from cograil.plugins import HTML, AppPages, NavigationEntry, PageRequest, Response, page, pages
from laundry.loads import list_loads

laundry = pages("laundry")
ENTRY = NavigationEntry(
    "laundry", "/ui/laundry", "Laundry", "M5 3h14v18H5zM12 17a4 4 0 1 0 0-8 4 4 0 0 0 0 8z"
)


@laundry.get("/laundry", "viewer", media_type=HTML)
async def show_laundry(visit: PageRequest) -> Response:
    """The newest loads."""
    async with visit.transaction("laundry.show") as tx:
        return page(visit, "laundry.html", loads=await list_loads(tx, visit.caller.tenant))


def app_pages() -> AppPages:
    """The pages of this app."""
    return AppPages(ENTRY, laundry)
