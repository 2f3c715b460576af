"""The workflows of the simulation, read once: many small ones, some of every shape, some with limits."""

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
    f"{{s: {{timeout_seconds: 3, {SUB}: {{workflow_id: two}}}},"
    " t: {timeout_seconds: 2, type: subworkflow, retry: {max_attempts: 3, initial_delay_seconds: 0},"
    " subworkflow: {workflow_id: one}, required: false}}",
]
TASK = "a: {handler: h, timeout_seconds: 5, retry: {max_attempts: 1}}"
CHILDREN = {
    "one": read_workflow(f"workflow_id: one\nnodes: {{{TASK}}}"),
    "few": read_workflow(f"workflow_id: few\nlimits: {{concurrency: 1}}\nnodes: {{{TASK}}}"),
    "deep": read_workflow(
        f"workflow_id: deep\nlimits: {{concurrency: 1}}\nnodes: {{s: {{{SUB}: {{workflow_id: one}}}}}}"
    ),
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

# Most seeds are of one task or two, and many times faster than the rest; one in five is of any shape.
ASKED = (
    "{q: {type: approval, next: b, approval: {message: well?, timeout_seconds: 4}},"
    " b: {handler: h, timeout_seconds: 5}}"
)
SMALL = [WORKFLOWS[0], WORKFLOWS[0], WORKFLOWS[1], WORKFLOWS[7]]
SMALL += [read_workflow(f"workflow_id: a\nnodes: {ASKED}")]
SMALL += [
    read_workflow(f"workflow_id: s{number}\n{more}\nnodes: {{{TASK}}}")
    for number, more in enumerate(["", "timeout_seconds: 4", "fail_fast: true", ""])
]
MIX = SMALL * (4 * len(WORKFLOWS) // len(SMALL)) + WORKFLOWS

ONE = "a: {handler: h, timeout_seconds: 5, retry: {max_attempts: 3, initial_delay_seconds: 0.5}"
FAN = (
    "f: {type: fan_out, source: '{{ inputs.list }}', task: {handler: h, timeout_seconds: 5,"
    " retry: {max_attempts: 2, initial_delay_seconds: 0}}"
)
RATE = "rate: {count: 1, per_seconds: 2}"
ONE_AT_A_TIME = "limits: {concurrency: 1}"
BY_KEY = "limits: {concurrency: 1, key: '{{ inputs.key }}'}"
LIMITED_TEXTS = [
    f"{ONE_AT_A_TIME}\nnodes: {{{ONE}}}}}",
    f"{ONE_AT_A_TIME}\ntimeout_seconds: 9\nnodes: {{{ONE}}}}}",
    f"{BY_KEY}\nfail_fast: true\nnodes: {{{ONE}}}, b: {{handler: h, timeout_seconds: 5}}}}",
    f"limits: {{{RATE}}}\nnodes: {{{ONE}}}}}",
    f"nodes: {{{ONE}, {ONE_AT_A_TIME}}}}}",
    f"timeout_seconds: 9\nnodes: {{{ONE}, {BY_KEY}}}}}",
    f"nodes: {{{ONE}, limits: {{concurrency: 2, {RATE}}}}}}}",
    f"nodes: {{{FAN}, limits: {{concurrency: 2}}}}}}",
    f"fail_fast: true\nnodes: {{{FAN}, {ONE_AT_A_TIME}}}}}",
    f"nodes: {{{FAN}, limits: {{rate: {{count: 2, per_seconds: 3}}, key: '{{{{ index }}}}'}}}}}}",
    f"limits: {{concurrency: 2}}\nnodes: {{{FAN}, {ONE_AT_A_TIME}, next: g}}, g: {{type: fan_in}}}}",
    f"nodes: {{s: {{{SUB}: {{workflow_id: few}}}}, r: {{{SUB}: {{workflow_id: few}}}}}}",
    f"nodes: {{s: {{{SUB}: {{workflow_id: deep}}}}}}",
]
LIMITED = [read_workflow(f"workflow_id: l{n}\n{text}") for n, text in enumerate(LIMITED_TEXTS)]
