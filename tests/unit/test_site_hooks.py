"""The hooks of the documentation site."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tools.site_hooks import diagram_name, on_page_markdown, on_post_build

PAGE = SimpleNamespace(file=SimpleNamespace(src_uri="how-to/keys.md"))


@pytest.mark.parametrize(
    ("link", "rewritten"),
    [
        ("[a](../../examples/a.yaml)", "[a](https://github.com/cograil/cograil/blob/main/examples/a.yaml)"),
        ("[a](../reference/api.md#x)", "[a](../reference/api.md#x)"),
        ("[a](live.md)", "[a](live.md)"),
        ("[a](#x)", "[a](#x)"),
        ("[a](https://example.org/a)", "[a](https://example.org/a)"),
    ],
)
def test_links_that_leave_the_folder_lead_to_the_repository(link: str, rewritten: str) -> None:
    assert on_page_markdown(link, page=PAGE) == rewritten


def test_a_diagram_becomes_its_picture() -> None:
    picture = f"../pictures/{diagram_name('graph LR')}"
    assert on_page_markdown("```mermaid\ngraph LR```", page=PAGE) == f"![Diagram]({picture})"


def test_a_page_that_loads_a_foreign_script_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text('<a href="https://example.org">fine</a><script src="assets/a.js"></script>')
    on_post_build(config={"site_dir": str(tmp_path)})
    page.write_text('<script src="https://example.org/a.js"></script>')
    with pytest.raises(ValueError, match=r"loads https://example\.org/a\.js"):
        on_post_build(config={"site_dir": str(tmp_path)})
