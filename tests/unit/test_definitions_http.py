"""`http` in a workflow file: a request that the engine sees as a task."""

from __future__ import annotations

import pytest

from cograil.definitions import load_workflow, read_workflow
from cograil.errors import InvalidWorkflow
from cograil.model.workflow import Json, NodeType, WorkflowNode


def text_of(request: str, more: str = "") -> str:
    return f"workflow_id: w\nnodes:\n  a: {{type: http, http: {request}{more}}}\n"


def params(request: str, scope: dict[str, Json] | None = None) -> Json:
    template = read_workflow(text_of(request)).nodes["a"].params
    assert template is not None
    return template.render(scope or {})


def test_a_request_is_a_task_with_the_handler_http() -> None:
    node = read_workflow(text_of("{url: 'http://x/'}")).nodes["a"]
    assert node == WorkflowNode("a", NodeType.TASK, handler="http", params=node.params)
    node = read_workflow(
        text_of(
            "{url: 'http://x/'}", ", queue: q, timeout_seconds: 5, retry: {max_attempts: 1}, required: false"
        )
    ).nodes["a"]
    assert (node.queue, node.has_own_queue, node.timeout_seconds) == ("q", True, 5)
    assert (node.retry.max_attempts, node.required) == (1, False)


def test_method_and_expected_status_have_defaults() -> None:
    expected = {"method": "GET", "url": "http://x/", "expect_status": ["2xx"]}
    assert params("{url: 'http://x/'}") == expected
    assert (
        params("{url: 'http://x/', method: null, headers: null, body: null, expect_status: null}") == expected
    )


def test_the_params_are_the_rendered_request() -> None:
    scope = {"inputs": {"id": 7, "token": "t", "tags": ["a"]}}
    request = params(
        "{method: PUT, url: 'https://x/{{ inputs.id }}', headers: {Authorization: 'Key {{ inputs.token }}'},"
        " body: {tags: '{{ inputs.tags }}', n: 1}, expect_status: [201, 4xx], description: d}",
        scope,
    )
    assert request == {
        "method": "PUT",
        "url": "https://x/7",
        "headers": {"Authorization": "Key t"},
        "body": {"tags": ["a"], "n": 1},
        "expect_status": [201, "4xx"],
    }


@pytest.mark.parametrize(
    ("written", "expected"), [("204", [204]), ("3xx", ["3xx"]), ("[404, 2xx]", [404, "2xx"])]
)
def test_a_single_status_need_not_be_a_list(written: str, expected: list[Json]) -> None:
    assert params(f"{{url: 'http://x', expect_status: {written}}}")["expect_status"] == expected


@pytest.mark.parametrize("body", ["text", "5", "false", "[1, 2]", "{a: null}", "''"])
def test_the_body_is_any_value(body: str) -> None:
    assert "body" in params(f"{{url: 'http://x', body: {body}}}")


@pytest.mark.parametrize(
    "url",
    [
        "http://x",
        "HTTPS://X.example:8443/a?b=c",
        "http://[::1]:80/",
        "http://10.0.0.1/",
        "{{ inputs.url }}",
        "{{ inputs.base }}/x",
        "ht{{ inputs.rest }}",
        "http{{ inputs.rest }}",
        "https://{{ inputs.host }}/{{ inputs.path }}",
        "http://x/{{ inputs.path }}?q=a b",
    ],
)
def test_a_url_is_http_as_far_as_can_be_known(url: str) -> None:
    assert read_workflow(text_of(f"{{url: {url!r}}}"))


@pytest.mark.parametrize(
    "url",
    [
        " ",
        "x",
        "/path",
        "ftp://x",
        "file:///etc/passwd",
        "httpx://x",
        " http://x",
        "http:x",
        "http:/x",
        "http://",
        "http:///x",
        "http://:80/",
        "http://x:port/",
        "http://x:99999/",
        "http://[::1/",
        "http://a b/",
        "http://x/a b",
        "http://x\\\\y/",
        "http://user:secret@x/",
        "ftp://{{ inputs.host }}",
        "x{{ inputs.rest }}",
        " {{ inputs.url }}",
    ],
)
def test_a_url_that_can_never_work_is_refused(url: str) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(text_of(f'{{url: "{url}"}}'))
    assert [(problem.code, problem.pointer) for problem in caught.value.problems] == [
        ("invalid_value", "/nodes/a/http/url")
    ]


@pytest.mark.parametrize(
    ("written", "code", "below"),
    [
        ("{}", "missing_key", ""),
        ("'http://x'", "invalid_type", ""),
        ("{url: null}", "missing_key", "/url"),
        ("{url: 5}", "invalid_type", "/url"),
        ("{url: 'http://x', method: get}", "invalid_value", "/method"),
        ("{url: 'http://x', method: OPTIONS}", "invalid_value", "/method"),
        ("{url: 'http://x', method: '{{ inputs.m }}'}", "invalid_value", "/method"),
        ("{url: 'http://x', headers: [a]}", "invalid_type", "/headers"),
        ("{url: 'http://x', headers: {'a b': c}}", "invalid_value", "/headers/a b"),
        ("{url: 'http://x', headers: {'': c}}", "invalid_value", "/headers/"),
        ("{url: 'http://x', headers: {'a:': c}}", "invalid_value", "/headers/a:"),
        ('{url: "http://x", headers: {a: "b\\r\\nc: d"}}', "invalid_value", "/headers/a"),
        ("{url: 'http://x', headers: {a: 5}}", "invalid_type", "/headers/a"),
        ("{url: 'http://x', headers: {a: null}}", "invalid_type", "/headers/a"),
        ("{url: 'http://x', headers: {a: [b]}}", "invalid_type", "/headers/a"),
        ("{url: 'http://x', headers: {a: '{{ 1 + }}'}}", "template_syntax", "/headers/a"),
        ("{url: 'http://x', body: ['{{ nothing }}']}", "template_undefined", "/body/0"),
        ("{url: 'http://x', expect_status: []}", "invalid_value", "/expect_status"),
        ("{url: 'http://x', expect_status: 99}", "invalid_value", "/expect_status"),
        ("{url: 'http://x', expect_status: 600}", "invalid_value", "/expect_status"),
        ("{url: 'http://x', expect_status: 200.5}", "invalid_type", "/expect_status"),
        ("{url: 'http://x', expect_status: true}", "invalid_type", "/expect_status"),
        ("{url: 'http://x', expect_status: {a: 1}}", "invalid_type", "/expect_status"),
        ("{url: 'http://x', expect_status: [200, 6xx]}", "invalid_value", "/expect_status/1"),
        ("{url: 'http://x', expect_status: ['200']}", "invalid_value", "/expect_status/0"),
        ("{url: 'http://x', timeout: 5}", "unknown_key", "/timeout"),
    ],
)
def test_a_flaw_is_reported_once_at_its_place(written: str, code: str, below: str) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(text_of(written))
    (problem,) = caught.value.problems
    assert (problem.code, problem.pointer, problem.line) == (code, f"/nodes/a/http{below}", 3)
    assert problem.column


def test_handler_and_params_are_not_for_an_http_node() -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(text_of("{url: 'http://x'}", ", handler: h, params: {}"))
    assert [problem.pointer for problem in caught.value.problems] == ["/nodes/a/handler", "/nodes/a/params"]


def test_all_flaws_of_a_request_are_reported_at_once() -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(
            text_of("{method: FETCH, url: x, headers: {a: 1, 'b c': d}, expect_status: [1], bdy: 1}")
        )
    assert [problem.pointer for problem in caught.value.problems] == [
        f"/nodes/a/http/{below}"
        for below in ("method", "url", "headers/a", "headers/b c", "expect_status/0", "bdy")
    ]


def test_a_stored_document_gives_the_same_request() -> None:
    read = read_workflow(text_of("{url: 'http://x/{{ inputs.x }}'}"))
    template = load_workflow(read.document).nodes["a"].params
    assert template is not None
    assert template.render({"inputs": {"x": 1}})["url"] == "http://x/1"
    assert read.document["nodes"]["a"]["http"] == {"url": "http://x/{{ inputs.x }}"}
