"""The small workflows of the simulation, read once."""

from __future__ import annotations

from cograil.definitions import read_workflow

TEXTS = [
    "{a: {handler: h, timeout_seconds: 5, retry: {max_attempts: 2, initial_delay_seconds: 1}}}",
    "{a: {handler: h, retry: {max_attempts: 4, initial_delay_seconds: 0.5}, timeout_seconds: 8, next: b},"
    " b: {handler: h, params: {x: '{{ output.task }}'}, timeout_seconds: 5}}",
    "{a: {handler: h, timeout_seconds: 5, next: [b, c]}, b: {handler: h, timeout_seconds: 5, next: d},"
    " c: {handler: h, required: false, timeout_seconds: 5, retry: {max_attempts: 1}, next: d},"
    " d: {handler: h, timeout_seconds: 5}}",
    "{f: {type: fan_out, source: '{{ inputs.list }}', task: {handler: h, timeout_seconds: 5,"
    " retry: {max_attempts: 3, initial_delay_seconds: 0}}, next: g}, g: {type: fan_in}}",
    "{a: {handler: h, timeout_seconds: 5, next: c}, c: {type: conditional, condition: '{{ output.go }}',"
    " branches: {true: x, false: y}}, x: {handler: h, timeout_seconds: 5},"
    " y: {type: wait, wait: {seconds: 2}}}",
    "{a: {handler: h, timeout_seconds: 5}, b: {handler: h, timeout_seconds: 5},"
    " c: {handler: h, timeout_seconds: 5, depends_on: {any_of: [a, b]}}}",
]

WORKFLOWS = [read_workflow(f"workflow_id: w{number}\nnodes: {text}") for number, text in enumerate(TEXTS)]
WORKFLOWS += [
    read_workflow(f"workflow_id: t{number}\ntimeout_seconds: 9\nnodes: {text}")
    for number, text in enumerate(TEXTS[1:4])
]
