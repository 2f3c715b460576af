"""Duplicates that wait for a decision."""

from __future__ import annotations

from tests.apps.documents.document_site import DocumentSite

from cograil.apps.documents import duplicates


async def held(site: DocumentSite, *names: str) -> str:
    """Drop the same comic under each of these names; the key of all."""
    for name in names:
        site.drop(name)
        await site.look()
    (document,) = await site.documents()
    return document.key


def waiting(site: DocumentSite, key: str) -> list[str]:
    return [duplicates.name_of(path) for path in duplicates.held_files(site.folder, key)]
