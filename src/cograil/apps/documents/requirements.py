"""Requirements of the documents app: the Python extra, and programs of the system."""

from __future__ import annotations

from cograil.app_extras import require_extra, require_programs
from cograil.apps.documents import tools
from cograil.apps.documents.settings import DocumentSettings

MODULES = ("img2pdf", "libarchive", "ocrmypdf", "pikepdf", "PIL", "watchfiles")
PACKAGES = {"libarchive": "libarchive13", "tesseract": "tesseract-ocr", "ghostscript": "ghostscript"}


def require_extra_of_documents() -> None:
    """Raise UsageError if the extra `documents` is not installed."""
    require_extra("documents", MODULES)


def require_tools(settings: DocumentSettings) -> None:
    """Raise UsageError with the command that installs missing tools; a service brings its own tools."""
    require_extra_of_documents()
    require_programs(missing_programs(settings))


def missing_programs(settings: DocumentSettings) -> dict[str, str]:
    """The missing programs and languages, each with its package."""
    infos = []
    if not settings.prep_url:
        infos.append(tools.prep_info())
    if not settings.ocr_url:
        infos.append(tools.ocr_info())
    missing = {name: PACKAGES[name] for name in tools.missing(*infos) if name in PACKAGES}
    if not missing and not settings.ocr_url:
        packages = tools.missing_languages(settings.ocr_lang)
        missing = {f"the language {name.removeprefix('tesseract-ocr-')}": name for name in packages}
    return missing
