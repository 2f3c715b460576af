"""The accessibility rules that a page breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.async_api import Page

AXE = Path(__file__).with_name("vendor") / "axe.min.js"


async def wrong_for_some(page: Page, *rules: str) -> list[str]:
    """What axe-core finds: each rule that does not hold, and where; of these rules, or of all."""
    if not await page.evaluate("typeof axe === 'object'"):
        await page.evaluate(AXE.read_text())  # the policy of the page lets no other script in
    report: Any = await page.evaluate("rules => axe.run(rules.length ? {runOnly: rules} : {})", list(rules))
    return [
        f"{violation['id']}: {node['html'][:200]}"
        for violation in report["violations"]
        for node in violation["nodes"]
    ]
