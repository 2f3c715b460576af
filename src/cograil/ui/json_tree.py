"""JSON as collapsible blocks, for the inputs and outputs of jobs."""

from __future__ import annotations

import orjson
from markupsafe import Markup

from cograil.model.workflow import Json

MAX_OPEN_ITEMS = 30  # a longer list is folded at first


def json_tree(value: Json) -> Markup:
    """Return the value as markup: each object and each list is a collapsible block."""
    return Markup("").join(_lines(value, "", ""))


def _lines(value: Json, before: str, after: str) -> list[Markup]:
    if isinstance(value, dict) and value:
        items = [(f"{_text(key)}: ", item) for key, item in value.items()]
        return _block("{", "}", items, before, after)
    if isinstance(value, list) and value:
        return _block("[", "]", [("", item) for item in value], before, after)
    kind = "text" if isinstance(value, str) else "atom"
    return [Markup('<div>{}<span class="{}">{}</span>{}</div>').format(before, kind, _text(value), after)]


def _block(first: str, last: str, items: list[tuple[str, Json]], before: str, after: str) -> list[Markup]:
    is_open = "" if len(items) > MAX_OPEN_ITEMS else " open"
    noun = "entry" if len(items) == 1 else "entries"
    begin = Markup('<details{}><summary>{}{}<span class="folded"> … {} {} {}</span></summary>').format(
        Markup(is_open), before, first, f"{len(items):,}", noun, f"{last}{after}"
    )
    lines = [begin]
    for place, (name, item) in enumerate(items):
        lines += _lines(item, name, "," if place < len(items) - 1 else "")
    lines += [Markup("</details>"), Markup('<div class="last">{}</div>').format(f"{last}{after}")]
    return lines


def _text(value: Json) -> str:
    return orjson.dumps(value, default=str).decode()
