"""Templates that are refused when they are compiled, among them every row of the threat list (B77-B90)."""

from __future__ import annotations

from typing import Any

import pytest

from cograil.definitions import parser
from cograil.definitions.expressions import MAX_NODES, MAX_TEXT_BYTES, TemplateError
from cograil.definitions.templates import compile_template

FORBIDDEN, SYNTAX, COMPLEX = "template_forbidden", "template_syntax", "template_too_complex"

HOSTILE = [
    ("B77", "{{ ''.__class__ }}", FORBIDDEN),
    ("B77", "{{ ''['__class__'] }}", FORBIDDEN),
    ("B77", "{{ [].__class__.__mro__ }}", FORBIDDEN),
    ("B77", "{{ {}.__class__ }}", FORBIDDEN),
    ("B77", "{{ x|attr('__class__') }}", FORBIDDEN),
    ("B77", "{{ inputs.x|attr('__class__') }}", FORBIDDEN),
    ("B77", "{{ '{0.__class__}'.format(x) }}", FORBIDDEN),
    ("B78", "{{ lipsum.__globals__ }}", FORBIDDEN),
    ("B78", "{{ cycler.__init__ }}", FORBIDDEN),
    ("B78", "{{ self._TemplateReference__context }}", FORBIDDEN),
    ("B79", "{{ inputs.name() }}", FORBIDDEN),
    ("B79", "{{ inputs.name.upper() }}", FORBIDDEN),
    ("B79", "{{ (inputs.name)(1) }}", FORBIDDEN),
    ("B79", "{% macro m() %}{% endmacro %}", FORBIDDEN),
    ("B79", "{% set x = 1 %}", FORBIDDEN),
    ("B79", "{% for x in inputs.list %}{{ x }}{% endfor %}", FORBIDDEN),
    ("B79", "{% include 'x' %}", FORBIDDEN),
    ("B79", "{% import 'x' as y %}", FORBIDDEN),
    ("B79", "{%- extends 'x' -%}", FORBIDDEN),
    ("B80", "{{ 9**9**9 }}", FORBIDDEN),
    ("B80", "{{ 'a'*10**9 }}", FORBIDDEN),
    ("B80", "{{ '%1000000000d' % 1 }}", FORBIDDEN),
    ("B80", "{{ 9 // 0 }}", FORBIDDEN),
    ("B80", "{{ 9 / 0 }}", FORBIDDEN),
    ("B81", "{{ range(1000000000) }}", FORBIDDEN),
    ("B81", "{{ inputs.name|center(1000000000) }}", FORBIDDEN),
    ("B81", "{{ inputs.name|indent }}", FORBIDDEN),
    ("B81", "{{ inputs.list|batch(2) }}", FORBIDDEN),
    ("B81", "{{ inputs.list|slice(2) }}", FORBIDDEN),
    ("B81", "{{ inputs.list[0:1000000000] }}", FORBIDDEN),
    ("B82", "{{ inputs.name" + "|replace('a','aaaaaaaa')" * 8 + " }}", FORBIDDEN),
    ("B83", "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", COMPLEX),
    ("B83", "{{ " + "[" * 5000 + "1" + "]" * 5000 + " }}", COMPLEX),
    ("B83", "{{ inputs" + ".a" * 20_000 + " }}", COMPLEX),
    ("B83", "{{ inputs" + ".a" * 600 + " }}", COMPLEX),
    ("B83", "{{ " + "not " * 500 + "true }}", COMPLEX),
    ("B83", "{{ " + "-" * 500 + "inputs.count }}", COMPLEX),
    ("B83", "{{ 1" + " if true else 1" * 150 + " }}", COMPLEX),
    ("B83", "{{ 1" + " + 1" * 200 + " }}", COMPLEX),
    ("B83", "{{ inputs.name" + "|lower" * 200 + " }}", COMPLEX),
    ("B84", "{{ inputs.name", SYNTAX),
    ("B84", "{{ inputs.name }", SYNTAX),
    ("B84", "{% raw", SYNTAX),
    ("B84", "{{ inputs.name|nope }}", SYNTAX),
    ("B84", "{{ inputs['name' }}", SYNTAX),
    ("B84", "{{ 'name }}", SYNTAX),
    ("B84", "{{ }}", SYNTAX),
    ("B84", "{{ inputs. }}", SYNTAX),
    ("B84", "{{ inputs.a inputs.b }}", SYNTAX),
    ("B84", "{{ inputs.a = 1 }}", SYNTAX),
    ("B84", "{{ 1 < 2 < 3 }}", SYNTAX),
    ("B84", "{{ 1 if true }}", SYNTAX),
    ("B84", "{{ {inputs.a: 1} }}", SYNTAX),
    ("B84", "{{ inputs.a|default }}", SYNTAX),
    ("B84", "{{ " + "9" * 5000 + " }}", SYNTAX),
    ("B84", "{{ < 3 }}", SYNTAX),
    ("B84", "{{ is_null }}", SYNTAX),
    ("B85", "{{ unknown }}", "template_undefined"),
    ("B85", "{{ inputs.a ~ unknown.b }}", "template_undefined"),
    ("B85", "{{ upstream.status }}", "template_undefined"),
    ("B85", "{{ nodes.load.outptu }}", "template_undefined"),
    ("B86", "{{ {{ inputs.a }} }}", SYNTAX),
    ("B87", "{{ secrets.K }}", "secret_not_allowed_here"),
    ("B88", "{{ inputs.a }}" + "x" * MAX_TEXT_BYTES, COMPLEX),
    ("B88", "{{ inputs.a }}" + "\u20ac" * (MAX_TEXT_BYTES // 3), COMPLEX),
    ("B88", "{{ [" + "1," * MAX_NODES + "] }}", COMPLEX),
    ("B88", "{{ inputs.a }}" * 300, COMPLEX),
    ("B89", "{{ 1e999 }}", "invalid_number"),
    ("B90", "{# comment #}", FORBIDDEN),
    ("B90", "{{ inputs.a {# comment #} }}", SYNTAX),
    ("B90", "{{- lipsum.__globals__ -}}", FORBIDDEN),
    ("B90", "{%- raw -%}{{ 1 }}{%- endraw -%}", FORBIDDEN),
    ("env", "{{ env.HOME }}", FORBIDDEN),
    ("nodes", "{{ nodes }}", FORBIDDEN),
    ("nodes", "{{ nodes[inputs.name].output }}", FORBIDDEN),
    ("nodes", "{{ nodes[0].output }}", FORBIDDEN),
    ("tests", "{{ inputs.count is divisibleby(3) }}", FORBIDDEN),
]


def refusal(value: Any) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        compile_template(value)
    return caught.value


@pytest.mark.timeout(5)
@pytest.mark.parametrize(("row", "text", "code"), HOSTILE)
def test_a_hostile_or_broken_template_is_refused_when_it_is_compiled(row: str, text: str, code: str) -> None:
    assert refusal(text).code == code


@pytest.mark.parametrize(
    "text",
    [
        "{{ 9**9**9 }}",
        "{{ 'a'*10**9 }}",
        "{{ " + "(" * 100 + "1" + ")" * 100 + " }}",
        "{{ " + "[" * 5000 + "1" + "]" * 5000 + " }}",
        "{{ inputs" + ".a" * 3000 + " }}",
        "{{ inputs" + ".a" * 20_000 + " }}",
        "{{ " + "not " * 3000 + "true }}",
    ],
)
def test_size_and_powers_are_refused_before_anything_is_parsed(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parser, "_Parser", None)

    assert refusal(text).code in (COMPLEX, FORBIDDEN)


def test_the_message_about_env_says_what_to_do_instead() -> None:
    assert "pass the value as an input" in str(refusal("{{ env.HOME }}"))


def test_an_error_knows_its_line_and_column() -> None:
    error = refusal("first\n  {{ inputs.name|nope }}")

    assert (error.line, error.column) == (2, 18)


def test_an_error_knows_the_string_within_the_value() -> None:
    assert refusal({"a": ["fine", {"b": "{{ x }}"}]}).path == ("a", 1, "b")


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    value: Any = "x"
    for _ in range(5000):
        value = [value]

    assert refusal(value).code == COMPLEX


def test_long_chains_of_one_operator_are_no_deep_nesting() -> None:
    assert compile_template("{{ 1" + " ~ 1" * 200 + " }}").render({}) == "1" * 201
