"""The pictures of docs/how-to/ui.md and the README: `python -m tools.screenshots [NAME...]`.

Starts cograil on a database of its own, gives it work, and looks at it with chromium. What the chart shows
of the hours before is made up: jobs that just ran are moved back in that database. All else has happened.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
COLOURS = 200  # a page has few; so a picture is a third as large
DAY_SECONDS = 86_400

TILES = """
workflow_id: tiles
name: Map tiles
description: Cuts an aerial picture into tiles, works on each, and publishes the map once somebody agrees.
inputs:
  scene: {type: string, default: S2A_32UQD}
  tiles: {type: array, description: One entry for each tile.}
  catalogue_seconds: {type: number, default: 120}
nodes:
  fetch: {handler: sleep, params: {seconds: 0.4}, next: [inspect, metadata]}
  inspect: {handler: size_check, params: {size_bytes: 900000000}, next: route}
  route:
    type: conditional
    condition_field: output.route
    branches:
      - {name: small, condition: "== 'light'", next: warp_small}
      - {name: large, default: true, next: warp}
  warp_small: {handler: echo, next: mosaic}
  warp: {handler: multi_phase, params: {phases: 4, phase_delay: 0.2}, next: cut}
  cut:
    type: fan_out
    source: "{{ inputs.tiles }}"
    limits: {rate: 160/s}
    task:
      handler: flaky_echo
      params: {tile: "{{ item }}", failure_rate: 0.06}
      retry: {max_attempts: 2, backoff: fixed, initial_delay_seconds: 3}
    next: gather
  gather: {type: fan_in, required: false, next: mosaic}
  metadata: {handler: hello_world, params: {name: "{{ inputs.scene }}"}, next: [catalogue, thumbnail]}
  catalogue: {handler: sleep, params: {seconds: "{{ inputs.catalogue_seconds }}"}, next: review}
  thumbnail: {handler: echo, next: review}
  mosaic: {handler: sleep, params: {seconds: 1}, next: review}
  review:
    type: approval
    approval: {message: "Publish {{ inputs.scene }}?", approvers: [ada, grace]}
    next: publish
  publish: {handler: echo, next: notify}
  notify: {handler: hello_world, params: {name: everybody}, next: END}
"""
INVOICE = """
workflow_id: invoice
name: Invoice
inputs:
  customer: {type: string, default: acme}
  amount: {type: number, default: 120}
nodes:
  check: {handler: echo, next: charge}
  charge: {handler: flaky_echo, params: {failure_rate: 0.12}, retry: {max_attempts: 1}, next: mail}
  mail: {handler: hello_world, params: {name: "{{ inputs.customer }}"}}
"""
INVOICE_2 = (
    INVOICE.replace("workflow_id: invoice", "workflow_id: invoice\nversion: 2")
    .replace("max_attempts: 1", "max_attempts: 1, retry_on: [handler_error]")
    .replace("next: mail}", "next: book}\n  book: {handler: echo, next: mail}")
)


class Server:
    """A running cograil."""

    def __init__(self, url: str, database: str) -> None:
        self.url = url
        self.database = database

    def call(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.url + "/api/v1" + path, data, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def submit(self, workflow_id: str, **facts: Any) -> str:
        return str(self.call("/jobs", {"workflow_id": workflow_id, **facts})["job_id"])

    def wait(self, is_so: Callable[[], bool], seconds: float = 120.0) -> None:
        until = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > until:
                raise TimeoutError("this does not happen")
            time.sleep(0.2)

    def state(self, job_id: str) -> Any:
        """As its page sees it."""
        with urllib.request.urlopen(f"{self.url}/ui/jobs/{job_id}/state", timeout=60) as answer:
            return json.load(answer)


@contextlib.contextmanager
def running_server(**more: str) -> Iterator[Server]:
    """cograil on a directory of its own, with these settings too, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="cograil-pictures-") as directory:
        place = Path(directory) / "data" / "instance.json"
        environment = os.environ | {
            "COGRAIL_DATA_DIR": str(place.parent),
            "COGRAIL_APPS": "none",
            **more,
        }
        command = [*_elsewhere(), sys.executable, "-m", "cograil", "up", "--port", "0"]
        with subprocess.Popen(command, env=environment, cwd=directory, stderr=subprocess.DEVNULL) as process:
            try:
                until = time.monotonic() + 90
                while not place.exists() and time.monotonic() < until:
                    time.sleep(0.2)
                address = json.loads(place.read_text())
                yield Server(f"http://127.0.0.1:{address['port']}", address["conninfo"])
            finally:
                process.terminate()
                process.wait(30)


def _elsewhere() -> list[str]:
    """Under a host name that is nobody's, where one may choose it: it is in the names of processes."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return []
    return ["unshare", "--uts", "sh", "-c", 'hostname rail; exec "$@"', "sh"]


def furnish(server: Server) -> dict[str, str]:
    """Work of a day, and what is under way."""
    for text in (TILES, INVOICE, INVOICE_2, (ROOT / "examples" / "demo.yaml").read_text()):
        server.call("/workflows", {"source": text})
    dice = random.Random(7)
    customers = ("acme", "globex", "initech", "umbrella")
    jobs = [
        {"workflow_id": "invoice", "input_params": {"customer": dice.choice(customers), "amount": n}}
        for n in range(400)
    ]
    server.call("/jobs/batch", {"jobs": jobs})
    server.wait(lambda: not any(server.call(f"/jobs?status={s}")["jobs"] for s in ("pending", "running")))
    move_back(server.database, dice)
    server.submit("demo", labels={"customer": "initech"}, submitted_by="grace")
    server.call(
        "/schedules",
        {"name": "mornings", "workflow_id": "invoice", "cron": "0 6 * * *", "timezone": "Europe/Berlin"},
    )
    params = {"tiles": list(range(1000)), "scene": "S2A_31TFJ", "catalogue_seconds": 4}
    done = server.submit("tiles", input_params=params, submitted_by="grace")
    server.wait(lambda: server.state(done)["nodes"]["review"]["status"] == "waiting")
    failed = server.call("/jobs?status=failed&workflow_id=invoice&limit=1")["jobs"][0]["job_id"]
    return {"done": done, "failed": failed}


def move_back(database: str, dice: random.Random) -> None:
    """Jobs that ran just now, as if they had run over the day, more of them around noon."""
    with psycopg.connect(database) as connection:
        rows = connection.execute("select id from cograil.jobs where status <> 'running'").fetchall()
        for (job_id,) in rows:
            seconds = min(DAY_SECONDS - 900, abs(dice.gauss(9 * 3600, 4 * 3600)))
            connection.execute(
                """update cograil.jobs set created_at = created_at - %(b)s * interval '1 s',
                   started_at = started_at - %(b)s * interval '1 s',
                   finished_at = finished_at - %(b)s * interval '1 s' where id = %(id)s""",
                {"b": seconds, "id": job_id},
            )


def pictures(server: Server, jobs: dict[str, str], browser: Browser) -> Iterator[tuple[str, Page]]:
    """Each page when it is worth a look."""
    light, dark = _pages(server, browser)
    yield from _live(server, jobs, light, dark)
    yield from _still(jobs, light, dark)


def _pages(server: Server, browser: Browser) -> list[Page]:
    return [
        browser.new_context(
            base_url=server.url,
            viewport={"width": 1280, "height": 800},
            color_scheme=scheme,
            reduced_motion="reduce",
        ).new_page()
        for scheme in ("light", "dark")
    ]


def _live(server: Server, jobs: dict[str, str], light: Page, dark: Page) -> Iterator[tuple[str, Page]]:
    live = server.submit(
        "tiles", input_params={"tiles": list(range(1000))}, labels={"customer": "acme"}, submitted_by="ada"
    )
    dark.goto(f"/ui/jobs/{live}")
    light.goto(f"/ui/jobs/{live}")
    server.wait(lambda: server.state(live)["counts"].get("completed", 0) > 250)
    light.wait_for_timeout(700)
    yield "job", light
    dark.get_by_role("button", name="Children of cut").click()
    dark.mouse.move(5, 700)
    dark.evaluate("document.activeElement.blur()")
    dark.wait_for_timeout(700)
    yield "job-dark", dark
    dark.goto("/ui/approvals")
    dark.wait_for_timeout(400)
    yield "approvals", dark
    server.call(f"/jobs/{jobs['done']}/signals", {"name": "approve", "node_id": "review", "by": "ada"})
    server.wait(lambda: server.state(jobs["done"])["is_over"])
    light.goto("/ui/")
    light.wait_for_timeout(500)
    yield "dashboard", light


def _still(jobs: dict[str, str], light: Page, dark: Page) -> Iterator[tuple[str, Page]]:
    for name, page, path in (
        ("timeline", light, f"/ui/jobs/{jobs['done']}/timeline"),
        ("children", light, f"/ui/jobs/{jobs['done']}/nodes/cut"),
        ("retry", light, f"/ui/jobs/{jobs['failed']}/retry"),
        ("diff", light, "/ui/workflows/invoice?version=2&against=1"),
        ("submit", light, "/ui/submit?workflow_id=invoice"),
        ("jobs", light, "/ui/jobs"),
    ):
        page.goto(path)
        page.wait_for_timeout(400)
        yield name, page
    light.goto(f"/ui/jobs/{jobs['done']}")
    light.get_by_label("Time travel").fill("24")
    light.wait_for_timeout(800)
    yield "time-travel", light
    dark.set_viewport_size({"width": 390, "height": 780})
    dark.goto(f"/ui/jobs/{jobs['done']}")
    dark.wait_for_timeout(500)
    yield "phone", dark


def main(wanted: list[str]) -> None:
    """Make the pictures of these names, or all."""
    PICTURES.mkdir(exist_ok=True)
    with running_server() as server, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, page in pictures(server, furnish(server), browser):
            if not wanted or name in wanted:
                keep(name, page)
        browser.close()


def keep(name: str, page: Page) -> None:
    """A picture of this page, under this name."""
    target = PICTURES / f"{name}.png"
    page.screenshot(path=target)
    few = Image.open(target).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(target, optimize=True)
    print(target.relative_to(ROOT), target.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])
