"""Hooks of the documentation site (mkdocs.yml).

Links that leave docs/ lead to the repository. A mermaid diagram becomes the picture of it in docs/pictures, so that the
site loads no script from elsewhere. After the build, a page that loads a script, a style sheet or a font from another
host is an error.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

REPOSITORY = "https://github.com/cograil/cograil/blob/main/"
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
MERMAID = re.compile(r"```mermaid\n(.*?)```", re.S)
FOREIGN = re.compile(r"<(?:script|link)[^>]+(?:src|href)=\"?(https?://[^\"> ]+)[^>]*>")


def diagram_name(source: str) -> str:
    """The file name of the picture of a mermaid diagram; another source has another name."""
    return f"diagram-{hashlib.sha256(source.encode()).hexdigest()[:12]}.svg"


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rewrite the links and diagrams of a page."""
    folder = os.path.dirname(page.file.src_uri)

    def link(match: re.Match[str]) -> str:
        path = os.path.normpath(os.path.join("docs", folder, match[1]))
        return match[0] if path.startswith("docs/") else f"]({REPOSITORY}{path}{match[2] or ''})"

    def diagram(match: re.Match[str]) -> str:
        pictures = os.path.relpath("pictures", folder or ".")
        return f"![Diagram]({pictures}/{diagram_name(match[1])})"

    return LINK.sub(link, MERMAID.sub(diagram, markdown))


def on_post_build(*, config: Any, **_: Any) -> None:
    """Raise ValueError when a page loads something from another host."""
    for page in sorted(Path(config["site_dir"]).rglob("*.html")):
        for match in FOREIGN.finditer(page.read_text("utf-8")):
            if "rel=canonical" not in match[0].replace('"', ""):
                raise ValueError(f"{page} loads {match[1]}")
