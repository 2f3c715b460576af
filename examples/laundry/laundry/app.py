"""The app, as cograil finds it by its entry point. Nothing else is imported until it is used."""

from __future__ import annotations

from cograil.plugins import App, Command, lazy
from laundry.settings import LaundrySettings

app = App(
    name="laundry",
    summary="Wash loads of laundry.",
    settings=LaundrySettings,
    migrations="laundry",
    handlers=lazy("laundry.loads:handlers"),
    workflows=lazy("laundry.loads:workflows"),
    metrics="laundry.loads",
    routes=lazy("laundry.routes:app_routes"),
    api=lazy("laundry.routes:described"),
    pages=lazy("laundry.pages:app_pages"),
    templates="laundry",
    commands={"laundry": Command("laundry.cli:laundry", "Bring laundry, and see what is clean.")},
)
