"""Torture is asked for by name: `make torture`. Without that it is left out."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked torture, unless the marker was named."""
    if "torture" not in (config.option.markexpr or ""):
        left_out = [item for item in items if item.get_closest_marker("torture")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
