"""The small workflows of the simulation, read once."""

from __future__ import annotations

from cograil.definitions import read_workflow

SUB = "type: subworkflow, retry: {max_attempts: 2, initial_delay_seconds: 1}, subworkflow"
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
    "{a: {handler: h, timeout_seconds: 5, next: q}, q: {type: approval, next: b,"
    " approval: {message: well?, timeout_seconds: 4}},"
    " b: {handler: h, timeout_seconds: 5, when: \"output.decision == 'approved'\"}}",
    "{q: {type: approval, required: false,"
    " approval: {message: well?, timeout_seconds: 2, on_timeout: fail}}}",
    f"{{a: {{handler: h, timeout_seconds: 5}}, s: {{{SUB}: {{workflow_id: one}}, next: b}},"
    " b: {handler: h, timeout_seconds: 5, params: {x: '{{ output.result }}'}}}",
    f"{{s: {{{SUB}: {{workflow_id: two}}}}, r: {{{SUB}: {{workflow_id: none}}, required: false}}}}",
]
TASK = "a: {handler: h, timeout_seconds: 5, retry: {max_attempts: 1}}"
CHILDREN = {
    "one": read_workflow(f"workflow_id: one\nnodes: {{{TASK}}}"),
    "two": read_workflow(f"workflow_id: two\nnodes: {{{TASK}, s: {{{SUB}: {{workflow_id: one}}}}}}"),
}

WORKFLOWS = [read_workflow(f"workflow_id: w{number}\nnodes: {text}") for number, text in enumerate(TEXTS)]
WORKFLOWS += [
    read_workflow(f"workflow_id: t{number}\ntimeout_seconds: 9\nnodes: {text}")
    for number, text in enumerate(TEXTS[1:4])
]
WORKFLOWS += [
    read_workflow(f"workflow_id: t{number}\ntimeout_seconds: 9\nnodes: {text}")
    for number, text in enumerate(TEXTS[6:], 6)
]
WORKFLOWS += [
    read_workflow(f"workflow_id: f{number}\nfail_fast: true\nnodes: {text}")
    for number, text in enumerate([*TEXTS[2:4], *TEXTS[8:]])
]
