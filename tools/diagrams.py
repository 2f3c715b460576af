"""Draw the mermaid diagrams of the documentation: `python -m tools.diagrams PATH/TO/mermaid.min.js`.

Writes docs/pictures/diagram-HASH.svg for each diagram with chromium, and removes pictures that no page needs. The
script is in the npm package `mermaid` (`npm pack mermaid`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tools.site_hooks import MERMAID, diagram_name

DOCS = Path(__file__).parents[1] / "docs"
# Text in SVG elements rather than HTML: an <img> does not show HTML inside an SVG.
DRAW = """async source => {
  mermaid.initialize({startOnLoad: false, htmlLabels: false, flowchart: {htmlLabels: false}, theme: "neutral"});
  return (await mermaid.render("diagram", source)).svg;
}"""


def main(script: str) -> None:
    """Draw what is missing and remove what is not used."""
    pages = [page.read_text("utf-8") for page in sorted(DOCS.rglob("*.md"))]
    sources = {diagram_name(source): source for text in pages for source in MERMAID.findall(text)}
    for picture in (DOCS / "pictures").glob("diagram-*.svg"):
        if picture.name not in sources:
            picture.unlink()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        page.add_script_tag(path=script)
        for name, source in sources.items():
            drawing = page.evaluate(DRAW, source)
            (DOCS / "pictures" / name).write_text(drawing + "\n", "utf-8")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
