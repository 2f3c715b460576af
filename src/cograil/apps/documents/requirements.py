"""What working on documents needs here: the extra, and the programs of the system."""

from __future__ import annotations

from cograil.app_extras import require_extra, require_programs
from cograil.apps.documents import tools
from cograil.apps.documents.settings import DocumentSettings

MODULES = ("img2pdf", "libarchive", "ocrmypdf", "pikepdf", "PIL", "watchfiles")
PACKAGES = {"libarchive": "libarchive13", "tesseract": "tesseract-ocr", "ghostscript": "ghostscript"}


def require_extra_of_documents() -> None:
    """Raises UsageError where the extra `documents` is not installed."""
    require_extra("documents", MODULES)


def require_tools(settings: DocumentSettings) -> None:
    """Raises UsageError with the command that installs what is missing; a service brings its own tools."""
    require_extra_of_documents()
    require_programs(missing_programs(settings))


def missing_programs(settings: DocumentSettings) -> dict[str, str]:
    """The programs and languages that are not there, and the package that has each."""
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
