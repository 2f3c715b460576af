"""The JSON Schema of the file format: for editors, and a second opinion on what the checks accept."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a workflow file; a copy of your own."""
    text = files("cograil.definitions").joinpath("workflow.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded
