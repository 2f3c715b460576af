"""The JSON Schema says the same as the checks, the page explains every key, the examples pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cograil.definitions import read_workflow, schema
from cograil.definitions.diagnostics import Diagnostics
from cograil.definitions.yaml_loader import read_yaml
from cograil.errors import InvalidWorkflow

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
PAGE = (ROOT / "docs" / "reference" / "workflow-language.md").read_text(encoding="utf-8")
VALIDATOR = Draft202012Validator(schema())


def is_checked(text: str) -> bool:
    try:
        read_workflow(text)
    except InvalidWorkflow:
        return False
    return True


def is_valid(text: str) -> bool:
    report = Diagnostics()
    document = read_yaml(text, report)
    assert not report.problems
    return bool(VALIDATOR.is_valid(document))


def with_node(node: str) -> str:
    return f"workflow_id: w\nnodes:\n  a: {node}\n  b: {{handler: h}}\n"


def with_top(top: str) -> str:
    return f"workflow_id: w\n{top}\nnodes:\n  a: {{handler: h}}\n"


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(schema())
    assert schema()["$id"]


def test_every_key_has_a_description_for_editors() -> None:
    described = {name for name, definition in _properties() if _description(definition)}
    assert {name for name, _ in _properties()} - described == set()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_passes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert read_workflow(text, path.name).nodes
    assert is_valid(text)


def test_there_are_examples() -> None:
    shown = {"hello", "demo", "legacy", "approval", "subworkflow", "subworkflow_child", "limits", "http"}
    assert shown <= {path.stem for path in EXAMPLES}


def test_every_example_of_a_subworkflow_comes_with_its_child() -> None:
    workflows = [read_workflow(path.read_text(encoding="utf-8")) for path in EXAMPLES]
    wanted = {
        node.subworkflow.workflow_id
        for workflow in workflows
        for node in workflow.nodes.values()
        if node.subworkflow
    }
    assert wanted
    assert wanted <= {workflow.workflow_id for workflow in workflows}


GOOD = [
    with_node("{handler: h}"),
    with_node("{handler: h, next: b, queue: q, timeout_seconds: 0.1, required: false, params: {a: [1]}}"),
    with_node("{handler: h, next: [b, END]}"),
    with_node("{handler: h, next: []}"),
    with_node("{handler: h, retry: {max_attempts: 1, backoff: linear, jitter: 0.5, retry_on: [x]}}"),
    with_node("{handler: h, depends_on: b}"),
    with_node("{handler: h, depends_on: {all_of: b, description: why}}"),
    with_node("{type: start, next: b}"),
    with_node("{type: end, depends_on: b}"),
    with_node("{type: wait, wait: {seconds: 0}}"),
    with_node("{type: wait, wait: {until: '2030-01-01T00:00:00+01:00'}}"),
    with_node("{type: wait, wait: {until: '{{ inputs.t }}'}}"),
    with_node("{type: conditional, condition: 'true', branches: {true: b, false: END}}"),
    with_node("{type: conditional, condition: inputs.x, branches: {default: b}}"),
    with_node("{type: conditional, condition_field: inputs.x, branches: {k: b, default: []}}"),
    with_node("{type: conditional, branches: [{condition: true, next: b}, {name: d, default: true}]}"),
    with_node("{type: conditional, branches: [{default: false, condition: 'true'}, {default: true}]}"),
    with_node("{type: fan_out, source: [], task: {handler: h}}"),
    with_node(
        "{type: fan_out, source: '{{ inputs.x }}', task: {handler: h, retry: {}, params: {}}, next: b}"
    ),
    with_top("name: n\nversion: 2\ndescription: d\nis_active: false\nfail_fast: false\ntimeout_seconds: 5"),
    with_top("inputs: {a: {type: string}, b: {type: integer, required: false, default: 1}}"),
    with_top("inputs: {a: {type: object, default: null, description: d}}"),
    with_top("inputs: {}"),
    with_top("name:\nversion:\ndescription:\ninputs:\ntimeout_seconds:\nis_active:\nfail_fast:"),
    with_top("inputs: {a: {type: string, required: null, default: null, description: null}}"),
    with_node(
        "{type: null, handler: h, params: null, next: null, depends_on: null, queue: null, retry: null,"
        " required: null, timeout_seconds: null, description: null, branches: null, wait: null}"
    ),
    with_node("{handler: h, queue: ''}"),
    with_node("{handler: h, depends_on: {all_of: null, any_of: [b]}}"),
    with_node("{handler: h, retry: {max_attempts: null, backoff: null, jitter: null, retry_on: null}}"),
    with_node("{type: start, handler: null, next: b}"),
    with_node("{type: wait, wait: {seconds: null, until: '2030-01-01T00:00:00Z'}}"),
    with_node("{type: fan_out, source: [], task: {handler: h, queue: '', retry: null, params: null}}"),
    with_node("{type: conditional, condition: inputs.x, condition_field: null, branches: {default: null}}"),
    with_node("{type: conditional, condition: null, branches: [{default: true, condition: null}]}"),
    with_node(
        "{type: conditional, condition_field: inputs.x,"
        " branches: {light: {condition: '< 100', next: b}, heavy: {default: true}}}"
    ),
    with_node("{type: conditional, branches: {yes: {condition: inputs.x == 1}, no: {default: true}}}"),
    with_top("fail_fast: true"),
    with_top("limits: {concurrency: 1}"),
    with_top("schedules:"),
    with_top(
        "schedules: {a: {cron: '@daily', timezone: , inputs: , due_input: , priority: , overlap: , missed: }}"
    ),
    with_top(
        "schedules: {a.b: {cron: '* * * * *', inputs: {x: [1]}, due_input: y, priority: 10, description: d}}"
    ),
    with_top("limits: {concurrency: 1000000, rate: 1000000/h, key: 'a {{ inputs.x }}', description: d}"),
    with_node("{handler: h, when: 'true', limits: {rate: 10/s}}"),
    with_node("{handler: h, when: false, limits: {concurrency: null, rate: {count: 5, per_seconds: 0.5}}}"),
    with_node("{handler: h, when: null, limits: null, approval: null, subworkflow: null, http: null}"),
    with_node(
        "{type: fan_out, source: [], task: {handler: h}, when: inputs.x, limits: {rate: 1/m, key: null}}"
    ),
    with_node("{type: conditional, when: inputs.x, branches: [{default: true}]}"),
    with_node("{type: wait, when: inputs.x, wait: {seconds: 1}}"),
    with_node("{type: start, when: null, next: b}"),
    with_node("{type: approval, approval: {message: m}}"),
    with_node(
        "{type: approval, next: b, when: inputs.x, approval: {message: '{{ inputs.m }}',"
        " approvers: [a, b@c.d], form: {type: object, properties: {n: {$ref: '#/$defs/n'}},"
        " $defs: {n: {type: string, pattern: '^a'}}},"
        " timeout_seconds: 315360000, on_timeout: fail, description: d}}"
    ),
    with_node(
        "{type: approval, approval: {message: m, approvers: null, form: null, timeout_seconds: null,"
        " on_timeout: null}}"
    ),
    with_node("{type: approval, approval: {message: m, form: {}}}"),
    with_node("{type: subworkflow, subworkflow: {workflow_id: v}}"),
    with_node(
        "{type: subworkflow, depends_on: b, when: inputs.x,"
        " subworkflow: {workflow_id: v, version: 2, inputs: {a: '{{ inputs.x }}'}, description: d}}"
    ),
    with_node("{type: subworkflow, subworkflow: {workflow_id: v, version: null, inputs: null}}"),
    with_node("{type: http, http: {url: 'http://x'}}"),
    with_node("{type: http, http: {url: '{{ inputs.x }}'}}"),
    with_node("{type: http, http: {url: 'http{{ inputs.x }}'}}"),
    with_node("{type: http, http: {url: 'HTTPS://x:8443/?a=b'}}"),
    with_node(
        "{type: http, queue: q, retry: {max_attempts: 1}, timeout_seconds: 5, when: inputs.x,"
        " limits: {rate: 1/s}, next: b, http: {method: POST, url: 'http://x/{{ inputs.x }}', description: d,"
        " headers: {A-b: '{{ inputs.y }}'}, body: [1, {a: '{{ inputs.z }}'}], expect_status: [200, 4xx]}}"
    ),
    with_node(
        "{type: http, http: {url: 'http://x', method: null, headers: null, body: null, expect_status: null}}"
    ),
    with_node("{type: http, http: {url: 'http://x', expect_status: 204}}"),
    with_node("{type: http, http: {url: 'http://x', headers: {}, expect_status: 3xx}}"),
]

BAD = [
    "workflow_id: w\n",
    "workflow_id:\nnodes: {a: {handler: h}}\n",
    "workflow_id: w\nnodes:\n",
    "workflow_id: w\nnodes: {a: null}\n",
    "nodes: {a: {handler: h}}\n",
    "workflow_id: w\nnodes: {}\n",
    "workflow_id: w\nnodes: [a]\n",
    "workflow_id: w__1\nnodes: {a: {handler: h}}\n",
    "workflow_id: w\nnodes: {a__1: {handler: h}}\n",
    "workflow_id: w\nnodes: {'a b': {handler: h}}\n",
    with_top("verion: 1"),
    with_top("version: 0"),
    with_top("version: '1'"),
    with_top("is_active: 1"),
    with_top("timeout_seconds: 0"),
    with_top(f"name: {'n' * 129}"),
    with_top("inputs: {a: string}"),
    with_top("inputs: {a: {}}"),
    with_top("inputs: {a: {type: text}}"),
    with_top("inputs: {a: {type: integer, default: x}}"),
    with_top("inputs: {a: {type: boolean, default: 1}}"),
    with_top("inputs: {'a b': {type: string}}"),
    with_node("{}"),
    with_node("h"),
    with_node("{handler: ''}"),
    with_node("{handler: '{{ x }}'}"),
    with_node("{handler: h, handlr: h}"),
    with_node("{handler: null}"),
    with_node("{handler: h, nxt: b, queue: ' '}"),
    with_node("{handler: h, depends_on: {all_of: null}}"),
    with_node("{handler: h, timeout_seconds: 0}"),
    with_node("{handler: h, timeout_seconds: 86401}"),
    with_node("{handler: h, params: []}"),
    with_node("{handler: h, required: 1}"),
    with_node("{handler: h, next: 5}"),
    with_node("{handler: h, next: [b, b]}"),
    with_node("{handler: h, depends_on: []}"),
    with_node("{handler: h, depends_on: {}}"),
    with_node("{handler: h, depends_on: {one_of: b}}"),
    with_node("{handler: h, aggregation: sum}"),
    with_node("{handler: h, retry: {max_attempts: 11}}"),
    with_node("{handler: h, retry: {max_attempts: 1.5}}"),
    with_node("{handler: h, retry: {backoff: x}}"),
    with_node("{handler: h, retry: {jitter: 2}}"),
    with_node("{handler: h, retry: {retry_on: x}}"),
    with_node("{handler: h, retry: {tries: 2}}"),
    with_node("{type: dance}"),
    with_node("{type: container}"),
    with_node("{type: container, container: {image: 5}}"),
    with_node("{type: container, container: {image: i, id: x}}"),
    with_node("{type: start, when: 'true'}"),
    with_node("{type: end, depends_on: b, when: 'true'}"),
    with_node("{handler: h, when: 1}"),
    with_top("fail_fast: 1"),
    with_top("limits: {}"),
    with_top("schedules: []"),
    with_top("schedules: {a: {}}"),
    with_top("schedules: {'a b': {cron: '@daily'}}"),
    with_top("schedules: {a: {cron: '@daily', inputs: 3}}"),
    with_top("schedules: {a: {cron: '@daily', due_input: ' '}}"),
    with_top("schedules: {a: {cron: '@daily', priority: 11}}"),
    with_top("schedules: {a: {cron: '@daily', overlap: some}}"),
    with_top("schedules: {a: {cron: '@daily', version: 1}}"),
    with_top("limits: 3"),
    with_top("limits: {concurrency: null, rate: null, key: k}"),
    with_top("limits: {concurrency: 0}"),
    with_top("limits: {concurrency: 1000001}"),
    with_top("limits: {concurrency: 1.5}"),
    with_top("limits: {concurrency: 1, key: ' '}"),
    with_top("limits: {concurrency: 1, key: 5}"),
    with_top("limits: {concurrency: 1, keys: k}"),
    with_node("{handler: h, limits: {rate: 10}}"),
    with_node("{handler: h, limits: {rate: '10'}}"),
    with_node("{handler: h, limits: {rate: 0/s}}"),
    with_node("{handler: h, limits: {rate: 10/d}}"),
    with_node("{handler: h, limits: {rate: 1.5/s}}"),
    with_node("{handler: h, limits: {rate: {count: 1}}}"),
    with_node("{handler: h, limits: {rate: {count: 0, per_seconds: 1}}}"),
    with_node("{handler: h, limits: {rate: {count: 1, per_seconds: 0}}}"),
    with_node("{handler: h, limits: {rate: {count: 1, per_seconds: 1, burst: 2}}}"),
    with_node("{type: wait, wait: {seconds: 1}, limits: {concurrency: 1}}"),
    with_node("{type: fan_in, limits: {concurrency: 1}}"),
    with_node("{type: approval}"),
    with_node("{type: approval, approval: {}}"),
    with_node("{type: approval, approval: {message: null}}"),
    with_node("{type: approval, approval: {message: ''}}"),
    with_node("{type: approval, approval: {message: 5}}"),
    with_node("{type: approval, approval: {message: m, approvers: []}}"),
    with_node("{type: approval, approval: {message: m, approvers: ada}}"),
    with_node("{type: approval, approval: {message: m, approvers: ['{{ x }}']}}"),
    with_node("{type: approval, approval: {message: m, timeout_seconds: 0}}"),
    with_node("{type: approval, approval: {message: m, on_timeout: approve}}"),
    with_node("{type: approval, approval: {message: m, form: true}}"),
    with_node("{type: approval, approval: {message: m, form: {type: strin}}}"),
    with_node("{type: approval, approval: {message: m, form: {properties: {a: {minLength: -1}}}}}"),
    with_node("{type: approval, approval: {message: m}, limits: {concurrency: 1}}"),
    with_node("{type: subworkflow}"),
    with_node("{type: subworkflow, subworkflow: v}"),
    with_node("{type: subworkflow, subworkflow: {inputs: {}}}"),
    with_node("{type: subworkflow, subworkflow: {workflow_id: 'v w'}}"),
    with_node("{type: subworkflow, subworkflow: {workflow_id: v, version: 0}}"),
    with_node("{type: subworkflow, subworkflow: {workflow_id: v, version: latest}}"),
    with_node("{type: subworkflow, subworkflow: {workflow_id: v, inputs: []}}"),
    with_node("{type: subworkflow, subworkflow: {workflow_id: v, input: {}}}"),
    with_node("{type: http}"),
    with_node("{type: http, http: 'http://x'}"),
    with_node("{type: http, http: {}}"),
    with_node("{type: http, handler: h, http: {url: 'http://x'}}"),
    with_node("{type: http, http: {url: 5}}"),
    with_node("{type: http, http: {url: x}}"),
    with_node("{type: http, http: {url: 'ftp://x'}}"),
    with_node("{type: http, http: {url: 'ftp://{{ inputs.x }}'}}"),
    with_node("{type: http, http: {url: 'http://x', method: get}}"),
    with_node("{type: http, http: {url: 'http://x', headers: [a]}}"),
    with_node("{type: http, http: {url: 'http://x', headers: {'a b': c}}}"),
    with_node("{type: http, http: {url: 'http://x', headers: {a: 5}}}"),
    with_node("{type: http, http: {url: 'http://x', headers: {a: null}}}"),
    with_node("{type: http, http: {url: 'http://x', expect_status: []}}"),
    with_node("{type: http, http: {url: 'http://x', expect_status: [2yy]}}"),
    with_node("{type: http, http: {url: 'http://x', expect_status: [99]}}"),
    with_node("{type: http, http: {url: 'http://x', expect_status: true}}"),
    with_node("{type: http, http: {url: 'http://x', timeout: 5}}"),
    with_node("{type: start, handler: h}"),
    with_node("{type: start, depends_on: b}"),
    with_node("{type: end, next: b}"),
    with_node("{type: fan_in, aggregation: avg}"),
    with_node("{type: wait}"),
    with_node("{type: wait, wait: null}"),
    with_node("{type: wait, wait: {}}"),
    with_node("{type: wait, wait: {seconds: null}}"),
    with_node("{type: wait, wait: {seconds: 1, until: '2030-01-01T00:00:00Z'}}"),
    with_node("{type: wait, wait: {seconds: '1'}}"),
    with_node("{type: wait, wait: {seconds: -1}}"),
    with_node("{type: wait, wait: {until: soon}}"),
    with_node("{type: fan_out, source: [1]}"),
    with_node("{type: fan_out, source: x, task: {handler: h}}"),
    with_node("{type: fan_out, source: [1], task: {handler: h, next: b}}"),
    with_node("{type: conditional}"),
    with_node("{type: conditional, branches: null}"),
    with_node("{type: conditional, branches: []}"),
    with_node("{type: conditional, branches: {a: {condition: 'true'}}}"),
    with_node("{type: conditional, branches: {a: {next: b}, c: {default: true}}}"),
    with_node("{type: conditional, branches: {a: b, c: {default: true}}}"),
    with_node("{type: conditional, condition: 'true', branches: {a: {default: true}}}"),
    with_node("{type: conditional, branches: [{default: true}, {default: true}]}"),
    with_node("{type: conditional, branches: [{next: b}, {default: true}]}"),
    with_node("{type: conditional, branches: [{default: true, condition: 'true'}]}"),
    with_node("{type: conditional, condition: 'true', branches: [{default: true}]}"),
    with_node("{type: conditional, branches: {true: b, false: b}}"),
    with_node("{type: conditional, condition: 'true', branches: {true: b}}"),
    with_node("{type: conditional, branches: [{default: true}], next: b}"),
]


@pytest.mark.parametrize("text", GOOD)
def test_schema_and_checks_accept_the_same_files(text: str) -> None:
    assert is_checked(text)
    assert is_valid(text)


@pytest.mark.parametrize("text", BAD)
def test_schema_and_checks_refuse_the_same_files(text: str) -> None:
    assert not is_checked(text)
    assert not is_valid(text)


def test_the_page_mentions_every_key() -> None:
    mentioned = set(re.findall(r"[A-Za-z_]+", " ".join(re.findall(r"`[^`]+`|```.*?```", PAGE, re.DOTALL))))
    assert {name for name, _ in _properties()} - mentioned == set()


def test_the_page_names_every_value_that_a_key_may_have() -> None:
    choices = {value for subschema in _subschemas(schema()) for value in subschema.get("enum", [])}
    assert {choice for choice in choices if choice and f"`{choice}`" not in PAGE} == set()


WHOLE_FILES = [
    block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "workflow_id:" in block
]


@pytest.mark.parametrize("text", WHOLE_FILES, ids=lambda text: text.split("\n")[0])
def test_every_workflow_on_the_page_passes(text: str) -> None:
    assert read_workflow(text).nodes
    assert is_valid(text)


def test_the_page_shows_workflows() -> None:
    assert len(WHOLE_FILES) >= 5


def _subschemas(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _subschemas(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _subschemas(inner)


def _properties() -> Iterator[tuple[str, Any]]:
    """Every key of the format, as often as the schema speaks of it."""
    for subschema in _subschemas(schema()):
        if isinstance(subschema.get("properties"), dict):
            yield from subschema["properties"].items()


def _description(value: Any) -> str | None:
    """That of the key itself or of what it refers to."""
    if not isinstance(value, dict):
        return None
    if "description" in value or "$ref" not in value:
        return value.get("description")
    return _description(schema()["$defs"][value["$ref"].rpartition("/")[2]])
