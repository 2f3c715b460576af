"""The app `captures`: evidence that is ingested once, sealed, and provable to anybody."""

from __future__ import annotations

from cograil.apps.captures.settings import CaptureSettings
from cograil.plugins import App, Command, lazy, require_extra

EXTRA_MODULES = ("cryptography", "obstore", "rfc3161_client")

app = App(
    name="captures",
    summary="Take in evidence, seal it and prove it: /v1/captures.",
    settings=CaptureSettings,
    migrations="cograil.apps.captures",
    extra_modules=EXTRA_MODULES,
    commands={"captures": Command("cograil.apps.captures.cli:captures", "Verify proofs of captures.")},
    routes=lazy("cograil.apps.captures.routes:app_routes"),
    api=lazy("cograil.apps.captures.routes:described"),
    pages=lazy("cograil.apps.captures.pages:app_pages"),
    templates="cograil.apps.captures",
    require=lambda settings: require_extra("captures", EXTRA_MODULES),
    on_worker=lazy("cograil.apps.captures.handlers:captures_on_worker"),
)
