"""The page of documents as requests: what is shown, the three decisions, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from tests.apps.documents import sample_documents
from tests.apps.documents.document_site import DocumentSite
from tests.conftest import Eventually
from tests.support.api_client import serve_api
from tests.support.harness import open_harness, quick_settings
from tests.support.page_client import PageClient, check_required_roles

from cograil.apps.documents.layout import Folder
from cograil.apps.documents.pages import documents
from cograil.store.task_queries import save_progress

PLACE = "/ui/documents"
WORDS = {"use-existing": "USE_EXISTING_RESULT", "force": "FORCE_REPROCESS", "discard": "DISCARD"}


@pytest_asyncio.fixture
async def browser(site: DocumentSite, dsn: str) -> AsyncIterator[PageClient]:
    async with serve_api(site.lab, dsn, site.settings) as api:
        yield PageClient(api)


async def shown(browser: PageClient, path: str = PLACE) -> str:
    page = await browser.get(path)
    assert page.status == 200, page.raw
    return page.raw.decode()


async def hold(site: DocumentSite, *names: str, folder: Folder | None = None) -> str:
    """Drop the same comic under each of these names; the key of all."""
    for name in names:
        site.drop(name, folder=folder)
        await site.look()
    (document,) = await site.documents(folder)
    return document.key


def offered(page: str) -> list[str]:
    return re.findall(r'action="/ui/documents/\w+/([\w-]+)"', page)


async def test_an_empty_folder_says_what_to_do(site: DocumentSite, browser: PageClient) -> None:
    page = await shown(browser)
    assert "No duplicates" in page
    assert "No documents yet" in page
    assert 'href="/ui/documents" aria-current="page"' in page


async def test_documents_under_way_are_shown_with_state_and_pages(
    site: DocumentSite, browser: PageClient, eventually: Eventually
) -> None:
    await hold(site, "<b>.cbz")
    (document,) = await site.documents()
    page = await shown(browser)
    assert "&lt;b&gt;.cbz" in page
    assert f'href="/ui/jobs/{document.job_id}"' in page
    assert '<span class="badge pending">DISCOVERED</span>' in page
    hand = await site.lab.manual_worker()
    async with site.lab.orchestrator():
        (task,) = await eventually(hand.claim)
    note = {"id": task.task_id, "fence": task.fence, "current": 3, "total": 12, "message": ""}
    async with site.lab.db.transaction("test") as tx:
        await save_progress(tx, hand.worker_id, [note])
    page = await shown(browser)
    assert '<span class="badge running">PREP_RUNNING</span>' in page
    assert 'max="12" value="3"' in page
    assert "3/12 pages" in page


@pytest.mark.parametrize("word", WORDS)
async def test_a_decision_is_confirmed_written_for_its_file_and_audited(
    site: DocumentSite, browser: PageClient, word: str
) -> None:
    key = await hold(site, "a.cbz", "b.cbz", "c.cbz")
    page = await shown(browser)
    assert offered(page) == [*WORDS] * 2
    names = re.findall(r'name="file" value="([^"]+__c.cbz)"', page)
    decision = site.folder.held / key / "decision.json"
    form = {"token": await browser.token(PLACE), "file": names[0], "user": "", "back": PLACE}
    confirmation = await browser.post(f"{PLACE}/{key}/{word}", form)
    assert (confirmation.status, b"<h1>Sure?</h1>" in confirmation.raw, decision.exists()) == (
        200,
        True,
        False,
    )
    done = await browser.post(f"{PLACE}/{key}/{word}", form | {"confirmed": "yes"})
    assert (done.status, done.headers["location"]) == (303, PLACE)
    assert json.loads(decision.read_text()) == {"action": WORDS[word], "file": names[0]}
    assert await site.lab.rows("select action, target, data ->> 'decision' from cograil.audit_log") == [
        ("documents_decide", key, WORDS[word])
    ]
    page = await shown(browser)
    assert (offered(page), f">{WORDS[word]}<" in page) == ([*WORDS], True)  # the other one is still to decide
    await site.look()
    assert len(offered(await shown(browser))) == (6 if word == "use-existing" else 3)
    if word == "use-existing":
        assert "the existing job is not done yet" in await shown(browser)


@pytest.mark.parametrize("content", ["[1]", "1", '"DISCARD"', "no JSON", "{}", '{"action": 1}'])
async def test_an_invalid_decision_is_shown_as_such(
    site: DocumentSite, browser: PageClient, content: str
) -> None:
    key = await hold(site, "a.cbz", "b.cbz")
    (site.folder.held / key / "decision.json").write_text(content)
    await site.look()
    page = await shown(browser)
    assert "not a JSON object" in page or "is not a decision" in page
    assert "b.cbz" in page


async def test_the_watcher_carries_out_decisions_of_the_page(
    site: DocumentSite, browser: PageClient, eventually: Eventually
) -> None:
    first = site.drop("a.cbz")
    await site.prepare_results(first)
    key = await hold(site, "a.cbz", "b.cbz")
    form = {"token": await browser.token(PLACE), "confirmed": "yes"}
    await browser.post(f"{PLACE}/{key}/use-existing", form)
    async with site.working():
        await eventually(lambda: not site.names("hold/duplicates"))
    page = await shown(browser)
    assert "No duplicates" in page
    assert '<span class="badge completed">DONE</span>' in page
    assert f"b__job-{key}.pdf" in site.names("out")


async def test_each_user_has_a_folder_and_decisions_of_their_own(
    site: DocumentSite, browser: PageClient
) -> None:
    ada = Folder(site.root, "users/ada")
    ada.make()
    key = await hold(site, "first.cbz", "hers.cbz", folder=ada)
    assert "hers.cbz" not in await shown(browser)
    page = await shown(browser, f"{PLACE}?user=ada")
    assert "hers.cbz" in page
    assert '<option value="ada" selected>' in page
    form = {"token": await browser.token(f"{PLACE}?user=ada"), "confirmed": "yes"}
    assert (await browser.post(f"{PLACE}/{key}/discard", form)).status == 404  # nothing of it in the house
    assert (await browser.post(f"{PLACE}/{key}/discard", form | {"user": "ada"})).status == 303
    assert (ada.held / key / "decision.json").exists()
    for user in ("bob", "..", "ada/..", "%00"):
        assert (await browser.get(f"{PLACE}?user={user}")).status in (404, 422)


async def test_forbidden_actions_are_not_offered_and_are_refused(
    site: DocumentSite, browser: PageClient
) -> None:
    key = await hold(site, "a.cbz", "b.cbz")
    for role in ("viewer", "submitter"):
        browser.cookies.clear()
        await browser.login(await browser.api.make_key(role))
        assert offered(await shown(browser)) == []
        form = {"token": await browser.token(PLACE), "confirmed": "yes"}
        for word in WORDS:
            assert (await browser.post(f"{PLACE}/{key}/{word}", form)).status == 403
    assert not (site.folder.held / key / "decision.json").exists()
    assert await site.lab.rows("select count(*) from cograil.audit_log") == [(0,)]


async def test_a_document_that_is_not_held_cannot_be_decided(site: DocumentSite, browser: PageClient) -> None:
    key = await hold(site, "a.cbz", "b.cbz")
    form = {"token": await browser.token(PLACE), "confirmed": "yes"}
    assert (await browser.post(f"{PLACE}/{key}/discard", form | {"file": "nothing"})).status == 404
    assert (await browser.post(f"{PLACE}/{'0' * 64}__{'0' * 64}/discard", form)).status == 404
    assert (await browser.post(f"{PLACE}/none/discard", form)).status == 404
    assert (await browser.post(f"{PLACE}/{key}/burn", form)).status == 404
    assert await site.lab.rows("select count(*) from cograil.audit_log") == [(0,)]


async def test_for_another_tenant_there_is_no_folder(site: DocumentSite, browser: PageClient) -> None:
    key = await hold(site, "a.cbz", "b.cbz")
    await browser.login(await browser.api.make_key("admin", tenant="other"))
    home = await browser.get("/ui/")
    assert (home.status, PLACE.encode() in home.raw) == (200, False)
    assert (await browser.get(PLACE)).status == 404
    form = {"token": await browser.token("/ui/"), "confirmed": "yes"}
    assert (await browser.post(f"{PLACE}/{key}/discard", form)).status == 404


async def test_every_page_and_every_form_asks_for_its_role(site: DocumentSite, browser: PageClient) -> None:
    await check_required_roles(browser, [documents])


async def test_without_a_folder_the_page_says_that_the_app_is_off(dsn: str) -> None:
    settings = quick_settings(apps=())
    async with open_harness(dsn, settings) as lab, serve_api(lab, dsn, settings) as api:
        browser = PageClient(api)
        page = await shown(browser)
        assert "is off" in page
        assert "COGRAIL_DOCUMENTS__DATA_DIR=FOLDER cograil up" in page
        assert PLACE not in await shown(browser, "/ui/")


async def send(browser: PageClient, name: str, content: bytes, token: str, user: str = "") -> Any:
    query = urlencode({"name": name} | ({"user": user} if user else {}))
    headers = {"content-type": "application/octet-stream", "x-form-token": token}
    return await browser._send("POST", f"{PLACE}/upload?{query}", content, headers)


async def test_a_file_is_uploaded_to_the_folder(site: DocumentSite, browser: PageClient) -> None:
    token = await browser.token("/ui/deliveries")
    comic = sample_documents.tiny(site.root / "elsewhere.cbz").read_bytes()
    answer = await send(browser, "été 1.cbz", comic, token)
    assert (answer.status, answer.body) == (201, {"name": "été 1.cbz"})
    assert (site.folder.arrivals / "été 1.cbz").read_bytes() == comic
    assert (await send(browser, "été 1.cbz", comic, token)).body == {"name": "été 1 (2).cbz"}
    assert not [path for path in site.folder.arrivals.iterdir() if path.name.startswith(".")]
    await site.look()
    assert [document.name for document in await site.documents()] == ["été 1.cbz"]
    rows = await site.lab.rows("select action, target from cograil.audit_log order by id limit 1")
    assert rows == [("upload document", "été 1.cbz")]


async def test_a_file_that_is_not_a_document_is_not_uploaded(site: DocumentSite, browser: PageClient) -> None:
    token = await browser.token("/ui/deliveries")
    for name in ("../a.cbz", ".a.cbz", "a/b.cbz", "notes.txt", "a.cbz\n", "x" * 210 + ".cbz"):
        assert (await send(browser, name, b"PK", token)).status == 422, name
    assert (await send(browser, "a.cbz", b"", token)).status == 422
    assert (await send(browser, "a.cbz", b"PK", "other")).status == 403
    assert (await send(browser, "a.cbz", b"PK", token, user="..")).status == 404
    browser.cookies.clear()
    await browser.login(await browser.api.make_key("viewer"))
    assert (await send(browser, "a.cbz", b"PK", token)).status == 403
    assert list(site.folder.arrivals.iterdir()) == []


async def test_the_pdf_of_a_document_is_downloaded(
    site: DocumentSite, browser: PageClient, eventually: Eventually
) -> None:
    first = site.drop("a.cbz")
    await site.prepare_results(first)
    async with site.working():
        await eventually(lambda: site.names("out"))
        await eventually(lambda: _is_done(browser))
    (document,) = await site.documents()
    answer = await browser.get(f"{PLACE}/{document.key}/pdf")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/pdf")
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''a.pdf"
    assert document.out_pdf is not None
    assert answer.raw == (site.folder.out / document.out_pdf).read_bytes()
    assert (await browser.get(f"{PLACE}/{document.key}/pdf?user=bob")).status == 404
    assert (await browser.get(f"{PLACE}/none/pdf")).status == 404
    (site.folder.out / document.out_pdf).unlink()
    (site.folder.out / document.out_pdf).symlink_to("/etc/passwd")
    assert (await browser.get(f"{PLACE}/{document.key}/pdf")).status == 404


async def _is_done(browser: PageClient) -> bool:
    return '<span class="badge completed">DONE</span>' in await shown(browser)
