"""Files that were written for older orchestrators run unchanged, to their end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.harness import Harness

from cograil.runners.handler_registry import handler

LEGACY = (Path(__file__).parents[2] / "examples" / "legacy.yaml").read_text(encoding="utf-8")

PIPELINE = """
workflow_id: my_custom_pipeline
nodes:
  validate:
    handler: raster_validate
    params:
    next: reproject
  reproject:
    handler: raster_reproject
    queue: ""
    params:
      target_crs: "EPSG:3857"
    next: clip
  clip:
    handler: raster_clip
    params:
      boundary: "{{ inputs.aoi }}"
    next: analyze
  analyze:
    handler: stats_zonal
    params:
      zones: "{{ inputs.zones }}"
    next: END
"""


@pytest.mark.parametrize(
    ("size", "branch", "skipped"),
    [(5, "small", {"split", "aggregate"}), (100_000_000, "large", {"light"})],
)
async def test_the_legacy_example_runs_by_either_branch(
    harness: Harness, size: int, branch: str, skipped: set[str]
) -> None:
    async with harness.running():
        job = await harness.submit(LEGACY, {"file_size": size})
        ended = await harness.ended(job)
    assert ended["status"] == "completed"
    assert ended["result"]["route"]["taken_branch"] == branch
    assert ended["result"]["report"] == {"message": f"Hello, {size} bytes!"}
    statuses = await harness.statuses(job)
    assert {name for name, status in statuses.items() if status == "skipped"} == skipped


async def test_the_outputs_of_children_are_only_in_their_fan_in(harness: Harness) -> None:
    async with harness.running():
        job = await harness.submit(LEGACY, {"file_size": 100_000_000, "item_list": ["x", "y"]})
        result = (await harness.ended(job))["result"]
    nodes = await harness.nodes(job)
    assert {"split__0", "split__1"} <= nodes.keys()
    assert result.keys() == {"prepare", "route", "split", "aggregate", "report", "_provenance"}
    assert result["aggregate"]["results"] == [nodes["split__0"]["output"], nodes["split__1"]["output"]]
    assert result["aggregate"]["results"][0]["echoed_params"] == {"item_value": "x", "item_index": 0}


async def test_the_id_that_a_handler_sees_is_that_of_its_node(harness: Harness) -> None:
    async with harness.running():
        job = await harness.submit("workflow_id: w\nnodes: {a: {handler: echo}}")
        result = (await harness.ended(job))["result"]
    dispatched = [
        event["task_id"] for event in await harness.events(job) if event["event_type"] == "node_completed"
    ]
    assert [result["a"]["task_id"]] == dispatched


async def test_a_pipeline_of_somebody_elses_handlers_runs_to_its_end(harness: Harness) -> None:
    calls: list[tuple[str, Any]] = []

    def register(name: str) -> None:
        @handler(name, registry=harness.registry)
        async def work(**params: Any) -> dict[str, Any]:
            calls.append((name, params))
            return {"done": name}

    for name in ("raster_validate", "raster_reproject", "raster_clip", "stats_zonal"):
        register(name)
    async with harness.running():
        ended = await harness.ended(
            await harness.submit(PIPELINE, {"aoi": {"type": "Polygon"}, "zones": [1, 2]})
        )
    assert ended["status"] == "completed"
    assert calls == [
        ("raster_validate", {}),
        ("raster_reproject", {"target_crs": "EPSG:3857"}),
        ("raster_clip", {"boundary": {"type": "Polygon"}}),
        ("stats_zonal", {"zones": [1, 2]}),
    ]
    assert ended["result"]["analyze"] == {"done": "stats_zonal"}
