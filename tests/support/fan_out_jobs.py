"""A job with a fan-out over its input and a fan-in, for the tests of both."""

from __future__ import annotations

from typing import Any

from tests.support.memory_job import Job

FAN = """
workflow_id: w
nodes:
  split:
    type: fan_out
    source: "{{ inputs.list }}"
    task: {handler: h, params: {it: "{{ item }}", at: "{{ index }}"}, retry: {max_attempts: 1}}
    next: gather
  gather: {type: fan_in, aggregation: MODE}
"""


def fan_out_job(count: int, mode: str = "collect", **settings: Any) -> Job:
    inputs = {"list": [{"n": number} for number in range(count)]}
    return Job(FAN.replace("MODE", mode), inputs, **settings)
