"""Templates: what they render to, what is missing, and what no data can do to them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cograil.definitions.operators import MAX_RENDERED_BYTES
from cograil.definitions.templates import compile_template
from cograil.model.workflow import RenderError, Template

METHOD_NAMES = ["items", "keys", "values", "get", "update", "pop", "copy", "__class__", "__init__"]

SCOPE: dict[str, Any] = {
    "inputs": {
        "name": "Ada",
        "count": 3,
        "ratio": 0.5,
        "yes": True,
        "nothing": None,
        "empty": "",
        "list": [1, "two", None],
        "object": {"a": {"b": "deep"}},
        "table": [["x", {"y": 7}]],
        "user-id": "u1",
    },
    "nodes": {
        "load": {"output": {"size": 10, "files": ["a", "b"]}, "status": "completed"},
        "load-2": {"output": 2, "status": "completed"},
        "v1.2": {"output": "dotted", "status": "completed"},
        "skipped": {"status": "skipped"},
    },
    "item": {"key": "f.tif"},
    "index": 1,
    "output": {"size": 99, "tags": ["x"]},
}

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()
)
plain_text = st.text(alphabet=st.characters(exclude_characters="{", exclude_categories=["Cs"]))
constants = st.recursive(
    scalars.map(lambda value: value.replace("{", "") if isinstance(value, str) else value),
    lambda inner: st.lists(inner) | st.dictionaries(plain_text, inner),
    max_leaves=10,
)
finite = scalars.filter(lambda value: not isinstance(value, float) or math.isfinite(value))
data = st.recursive(finite, lambda inner: st.lists(inner) | st.dictionaries(plain_text, inner), max_leaves=10)


def render(value: Any, scope: dict[str, Any] = SCOPE) -> Any:
    return compile_template(value).render(scope)


def failure(value: Any, scope: dict[str, Any] = SCOPE) -> RenderError:
    template = compile_template(value)
    with pytest.raises(RenderError) as caught:
        template.render(scope)
    return caught.value


# What is rendered


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ inputs.name }}", "Ada"),
        ("{{inputs.count}}", 3),
        ("{{ inputs.ratio }}", 0.5),
        ("{{ inputs.yes }}", True),
        ("{{ inputs.nothing }}", None),
        ("{{ inputs.list }}", [1, "two", None]),
        ("{{ inputs.object }}", {"a": {"b": "deep"}}),
        ("{{ inputs.object.a.b }}", "deep"),
        ("{{ inputs['object']['a'].b }}", "deep"),
        ("{{ inputs['user-id'] }}", "u1"),
        ("{{ inputs.list[1] }}", "two"),
        ("{{ inputs.list.1 }}", "two"),
        ("{{ inputs.list[-1] }}", None),
        ("{{ inputs.list[index] }}", "two"),
        ("{{ inputs.table.0.1.y }}", 7),
        ("{{ {'a': 'x', 'b': 'y'}[nodes.load.output.files[0]] }}", "x"),
        ("{{ item.key }}", "f.tif"),
        ("{{ index }}", 1),
        ("{{ output.size }}", 99),
        ("{{ upstream.output.size }}", 99),
        ("{{ nodes.load.output.size }}", 10),
        ("{{ nodes.load.status }}", "completed"),
        ("{{ nodes.load-2.output }}", 2),
        ("{{ nodes['v1.2'].output }}", "dotted"),
        ("{{ nodes.load.output.size-nodes.load-2.output }}", 8),
        ("{{- inputs.count -}}", 3),
        ("{{ inputs.count }}\n", 3),
        ("{{ {'a': {'b': [inputs.count]}} }}", {"a": {"b": [3]}}),
        ("{{ [[], {}, 2,] }}", [[], {}, 2]),
        ("{{ 'it\\'s' ~ \"\\n\" }}", "it's\n"),
        ("{{ '}}' }}", "}}"),
        ("{{ '{%' }}", "{%"),
        ("{{ True }}", True),
        ("{{ none }}", None),
        ("{{ 1e3 }}", 1000.0),
        ("{{ -inputs.count }}", -3),
        ("{{ 10 - 2 - 3 }}", 5),
        ("{{ inputs.count + inputs.ratio }}", 3.5),
        ("{{ inputs.name ~ '-' ~ inputs.count }}", "Ada-3"),
        ("{{ 'big' if inputs.count > 2 else 'small' }}", "big"),
        ("{{ 'a' if false else 'b' if false else 'c' }}", "c"),
        ("{{ inputs.empty or 'x' }}", "x"),
        ("{{ inputs.name and inputs.count }}", 3),
        ("{{ not inputs.list }}", False),
        ("{{ inputs.count == 3 and inputs.yes }}", True),
        ("{{ inputs.count is defined }}", True),
        ("{{ inputs.nope is defined }}", False),
        ("{{ inputs.nope.deeper is not defined }}", True),
        ("{{ inputs.nothing is none }}", True),
        ("{{ inputs.name is not none }}", True),
        ("{{ is_null(inputs.nope) }}", True),
        ("{{ inputs.name|lower }}", "ada"),
        ("{{ inputs.name | upper }}", "ADA"),
        ("{{ inputs.list|length }}", 3),
        ("{{ inputs.object|tojson }}", '{"a":{"b":"deep"}}'),
        ("{{ inputs.name|tojson }}", '"Ada"'),
        ("{{ inputs.list|join(', ') }}", "1, two, null"),
        ("{{ inputs.list|join }}", "1twonull"),
        ("Hello {{ inputs.name }}!", "Hello Ada!"),
        ("{{ inputs.count }}{{ inputs.count }}", "33"),
        ("{{ inputs.yes }}/{{ inputs.nothing }}/{{ inputs.ratio }}", "true/null/0.5"),
        ("l={{ inputs.list }}", 'l=[1,"two",null]'),
        ("o={{ inputs.object }}", 'o={"a":{"b":"deep"}}'),
        ("a  {{- inputs.count -}}  b", "a3b"),
        ("{{ inputs.count }}\nnext\n", "3\nnext\n"),
        ("n={{ inputs.count }}\n", "n=3\n"),
        ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
        ("${NAME} <% x %> # for x in y", "${NAME} <% x %> # for x in y"),
    ],
)
def test_a_template_renders(text: str, expected: Any) -> None:
    rendered = render(text)

    assert rendered == expected
    assert type(rendered) is type(expected)


def test_holes_are_filled_at_any_depth_and_keys_are_left_alone() -> None:
    value = {"{{ inputs.name }}": [1, {"x": "{{ inputs.list }}", "y": "n={{ index }}"}], "z": [None]}

    assert render(value) == {"{{ inputs.name }}": [1, {"x": [1, "two", None], "y": "n=1"}], "z": [None]}
    assert value["z"] is render(value)["z"], "constant parts are shared, not copied"


def test_rendering_leaves_the_template_as_it_was() -> None:
    template = compile_template({"a": ["{{ index }}"]})

    assert [template.render({"index": i}) for i in range(3)] == [{"a": [0]}, {"a": [1]}, {"a": [2]}]


@given(constants)
def test_a_constant_renders_to_itself(value: Any) -> None:
    template = compile_template(value)

    assert template.is_constant
    assert template.render({}) is value


@given(data)
def test_a_lone_hole_keeps_the_value_and_its_type(value: Any) -> None:
    assert render("{{ inputs.x }}", {"inputs": {"x": value}}) is value


@given(data)
def test_tojson_and_mixed_text_are_json_that_reads_back(value: Any) -> None:
    scope = {"inputs": {"x": value}}

    assert json.loads(render("{{ inputs.x|tojson }}", scope)) == value
    assert json.loads(render(" {{ [inputs.x] }}", scope)) == [value]


@given(
    st.sampled_from(["{{ secrets.K }}", "{{ inputs.x }}", "{% raw %}", "{{", "}}", "{# #}", "{{ 9**9**9 }}"])
)
def test_data_with_braces_is_never_rendered(hostile: str) -> None:
    scope = {"inputs": {"x": hostile}, "item": {"y": [hostile]}}

    assert render("{{ inputs.x }}", scope) == hostile
    assert render("<{{ inputs.x }}>", scope) == f"<{hostile}>"
    assert render({"a": ["{{ item.y }}"]}, scope) == {"a": [[hostile]]}
    assert render("{{ item.y|join('{{') ~ inputs.x }}", scope) == hostile * 2


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_names_of_methods_are_names_of_fields(name: str) -> None:
    scope = {"inputs": {name: {name: 1}}}

    assert render(f"{{{{ inputs.{name}.{name} }}}}", scope) == 1
    assert failure(f"{{{{ inputs.{name} }}}}").code == "template_undefined"
    assert failure(f"{{{{ inputs.name.{name} }}}}").code == "template_undefined"
    assert failure(f"{{{{ inputs.list.{name} }}}}").code == "template_undefined"


# What is missing


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{{ inputs.nope }}", "inputs.nope"),
        ("{{ inputs.user.name }}", "inputs.user.name"),
        ("{{ inputs.nothing.field }}", "inputs.nothing.field"),
        ("{{ inputs.name.field }}", "inputs.name.field"),
        ("{{ inputs.list[3] }}", "inputs.list.3"),
        ("{{ inputs.list[-4] }}", "inputs.list.-4"),
        ("{{ inputs.object[0] }}", "inputs.object.0"),
        ("{{ inputs.object[inputs.name] }}", 'inputs.object["Ada"]'),
        ("{{ inputs.object[inputs.list] }}", "inputs.object["),
        ("{{ inputs.list[inputs.yes] }}", "inputs.list[true]"),
        ("{{ inputs.list[inputs.ratio] }}", "inputs.list[0.5]"),
        ("{{ nodes.skipped.output }}", "nodes.skipped.output"),
        ("{{ nodes.gone.output.x }}", "nodes.gone.output.x"),
        ("text {{ inputs.nope }}", "inputs.nope"),
        ("{{ [inputs.nope] }}", "inputs.nope"),
        ("{{ inputs.nope ~ 'x' }}", "inputs.nope"),
        ("{{ inputs.nope == none }}", "inputs.nope"),
    ],
)
def test_a_missing_value_fails_and_is_named(text: str, path: str) -> None:
    error = failure(text)

    assert error.code == "template_undefined"
    assert path in str(error)


def test_a_root_that_the_scope_lacks_is_missing() -> None:
    assert failure("{{ item }}", {"inputs": {}}).code == "template_undefined"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ inputs.nope|default('d') }}", "d"),
        ("{{ inputs.a.b.c|default([]) }}", []),
        ("{{ inputs.nothing.field|default(1) }}", 1),
        ("{{ nodes.skipped.output.x|default(none) }}", None),
        ("{{ inputs.nothing|default('d') }}", None),
        ("{{ inputs.nothing|default('d', true) }}", "d"),
        ("{{ inputs.empty|default('d') }}", ""),
        ("{{ inputs.empty|default('d', true) }}", "d"),
        ("{{ inputs.empty|default('d', false) }}", ""),
        ("{{ 0|default(5, true) }}", 5),
        ("{{ []|default(5, true) }}", 5),
        ("{{ {}|default(5, true) }}", 5),
        ("{{ false|default(5, true) }}", 5),
        ("{{ inputs.name|default('d', true) }}", "Ada"),
        ("{{ inputs.nope|default(inputs.gone)|default('last') }}", "last"),
        ("{{ (inputs.nope|default({'x': 1})).x }}", 1),
        ("{{ inputs.list[9]|default('none') ~ '!' }}", "none!"),
    ],
)
def test_default_stands_in_for_what_is_missing(text: str, expected: Any) -> None:
    assert render(text) == expected


def test_default_forgives_nothing_else() -> None:
    assert failure("{{ (inputs.name + 1)|default(0) }}").code == "template_type"


@pytest.mark.parametrize(
    "text",
    [
        "{{ inputs.name + 1 }}",
        "{{ inputs.name + inputs.name }}",
        "{{ inputs.yes + 1 }}",
        "{{ inputs.nothing - 1 }}",
        "{{ -inputs.name }}",
        "{{ inputs.count|lower }}",
        "{{ inputs.nothing|upper }}",
        "{{ inputs.count|length }}",
        "{{ inputs.object|join(',') }}",
        "{{ inputs.list|join(1) }}",
    ],
)
def test_an_operation_on_the_wrong_type_fails(text: str) -> None:
    assert failure(text).code == "template_type"


# How much may be rendered

BIG = {"inputs": {"big": "x" * (MAX_RENDERED_BYTES // 2 + 1), "wide": ["\u20ac" * 1000] * 350, "small": "x"}}


@pytest.mark.parametrize(
    "value",
    [
        "{{ inputs.big }}{{ inputs.big }}",
        "{{ inputs.big ~ inputs.big }}",
        "{{ [inputs.big, inputs.big] }}",
        "{{ {'a': inputs.big, 'b': inputs.big} }}",
        "{{ [inputs.big, inputs.big]|length }}",
        "{{ [inputs.big]|join|join(',') }}",
        "{{ inputs.wide }}",
        "{{ inputs.wide|tojson|length }}",
        "{{ inputs.wide|join }}",
        ["{{ inputs.big }}", "{{ inputs.big }}"],
        {"a": "{{ inputs.big }}", "b": {"c": ["<{{ inputs.big }}>"]}},
        ["x" * (MAX_RENDERED_BYTES // 2), "{{ inputs.big }}"],
        "{{ 'aaaaaaaa'" + "|join('aaaaaaaa')" * 20 + " }}",
    ],
)
def test_more_than_a_mebibyte_is_not_rendered(value: Any) -> None:
    assert failure(value, BIG).code == "template_too_large"


def test_a_text_of_the_maximum_size_is_rendered() -> None:
    room = MAX_RENDERED_BYTES - 10

    assert len(render("{{ inputs.x }}", {"inputs": {"x": "x" * room}})) == room


def test_a_thousand_holes_stop_at_the_first_that_does_not_fit() -> None:
    read = []

    class Inputs(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            read.append(key)
            return super().__getitem__(key)

    failure(["{{ inputs.big }}"] * 1000, {"inputs": Inputs(BIG["inputs"])})

    assert len(read) == 2


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "text",
    ["{{ inputs.x }}", "{{ inputs.x|tojson }}", "n={{ inputs.x }}", "{{ [inputs.x] }}", "{{ inputs.x + 1 }}"],
)
def test_a_number_that_is_not_finite_is_not_rendered(number: float, text: str) -> None:
    assert failure(text, {"inputs": {"x": number}}).code == "invalid_number"
    if "+" not in text:
        assert failure(text, {"inputs": {"x": {"deep": [None, number]}}}).code == "invalid_number"


def test_a_sum_beyond_the_largest_number_fails() -> None:
    assert failure("{{ inputs.x + inputs.x }}", {"inputs": {"x": 1.7e308}}).code == "invalid_number"
    assert failure("{{ inputs.x + 0.5 }}", {"inputs": {"x": 10**400}}).code == "invalid_number"


def test_integers_beyond_64_bits_and_lone_surrogates_are_rendered_as_they_are() -> None:
    odd = [10**30, "\ud800"]

    assert render("{{ inputs.x }}", {"inputs": {"x": odd}}) is odd
    assert render("{{ inputs.x|tojson }}", {"inputs": {"x": odd}}) == f'[{10**30},"\ud800"]'


def test_data_that_is_nested_too_deeply_to_be_written_fails_alone() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]

    assert failure("{{ inputs.x }}", {"inputs": {"x": deep}}).code == "template_too_large"
    assert (
        failure("{{ inputs.x == inputs.y }}", {"inputs": {"x": deep, "y": [deep]}}).code == "condition_type"
    )


# What is known without rendering


def test_a_template_says_what_it_reads() -> None:
    template = compile_template(
        {
            "a": "{{ nodes.load.output.x ~ nodes['v1.2'].status }}",
            "b": ["{{ inputs.name }} {{ inputs['user-id'] }}", "{{ item.x|default(inputs.other) }}"],
            "c": "{{ 1 if nodes.skipped.status == 'skipped' else index }}",
        }
    )

    assert template.references == {"load", "v1.2", "skipped"}
    assert template.names == {"nodes", "inputs", "item", "index"}
    assert template.input_names == {"name", "user-id", "other"}
    assert not template.uses_output
    assert not template.is_constant


@pytest.mark.parametrize(
    "text", ["{{ output }}", "{{ output.x }}", "{{ upstream.output.x }}", "a{{ 1 ~ output }}"]
)
def test_a_template_says_that_it_reads_the_output_before(text: str) -> None:
    assert compile_template(text).uses_output


def test_a_compiled_template_is_a_template_of_the_model() -> None:
    template: Template = compile_template("{{ inputs.name }}")

    assert template.render(SCOPE) == "Ada"
