"""What people read: durations, moments, JSON that fits, sentences; nothing in them disturbs a terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cograil.cli.display.event_sentences import event_sentence, event_subject
from cograil.cli.display.formatting import PLAIN_SIGNS, SIGNS, STATE_STYLES, ago, duration, printable, took
from cograil.cli.display.output import error_line, format_json
from cograil.model.states import EVENT_TYPES, JOB_STATES, NODE_STATES

NOW = datetime(2026, 1, 31, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0.00 s"),
        (0.123, "0.12 s"),
        (9.994, "9.99 s"),
        (9.996, "10.0 s"),
        (59.96, "1 m 00 s"),
        (125, "2 m 05 s"),
        (3599.7, "1 h 00 m"),
        (11_520, "3 h 12 m"),
        (370_800, "4 d 7 h"),
    ],
)
def test_a_duration_is_as_exact_as_it_needs_to_be(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_moment_is_told_by_its_age() -> None:
    ages = [ago(NOW - timedelta(seconds=seconds), NOW) for seconds in (-5, 5, 130, 7300, 200_000)]
    assert ages == ["0 s ago", "5 s ago", "2 m ago", "2 h ago", "2 d ago"]
    assert ago(None) == ""


def test_running_nodes_are_timed_until_now_and_pending_ones_not_at_all() -> None:
    assert took(NOW - timedelta(seconds=2), None, NOW) == "2.00 s"
    assert took(None, None, NOW) == ""


def test_every_state_has_signs_and_a_colour() -> None:
    for state in {*JOB_STATES, *NODE_STATES}:
        assert state in SIGNS
        assert state in PLAIN_SIGNS
        assert PLAIN_SIGNS[state].isascii()
        assert state in STATE_STYLES


@given(st.text())
def test_printable_text_is_one_line_without_control_characters(text: str) -> None:
    assert all(character.isprintable() or ord(character) > 0x9F for character in printable(text))
    assert "\x1b" not in printable(text)
    assert len(printable(text).splitlines()) <= 1


def test_an_error_is_its_message_and_its_code() -> None:
    assert error_line({"code": "boom", "message": "it\nbroke \x1b[31m"}) == "it broke \ufffd[31m [boom]"
    assert error_line({}) == "failed"


Values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=6),
    max_leaves=30,
)


@given(Values, st.integers(20, 120))
def test_a_value_that_was_made_to_fit_is_the_same_value(value: Any, width: int) -> None:
    text = format_json(value, width)
    assert json.loads(text) == value
    assert not any(ord(character) < 0x20 and character != "\n" for character in text)


def test_short_values_stay_on_one_line() -> None:
    assert format_json({"a": [1, 2], "b": {"c": None}}, 80) == '{"a": [1, 2], "b": {"c": null}}'
    lines = format_json({"numbers": list(range(40)), "inner": {"key": "x" * 30}}, 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert len(lines) < 10


def event(kind: str, data: dict[str, Any], node: str | None = None) -> dict[str, Any]:
    return {"event_type": kind, "data": data, "node_id": node}


@pytest.mark.parametrize("kind", [*EVENT_TYPES, "something_new"])
def test_every_kind_of_event_is_a_sentence_even_without_its_data(kind: str) -> None:
    assert event_sentence(event(kind, {}))


def test_sentences_say_what_happened() -> None:
    retried = event("node_retry", {"delay_seconds": 5, "error": {"code": "boom", "message": "no"}}, "import")
    assert f"{event_subject(retried)} {event_sentence(retried)}" == "import retried in 5.00 s: no [boom]"
    cancelled = event("job_cancelled", {"by": "ada", "reason": "wrong file"})
    assert f"{event_subject(cancelled)} {event_sentence(cancelled)}" == "job cancelled by ada: wrong file"
    assert (
        event_sentence(event("node_skipped", {"reason": "branch"}, "a"))
        == "skipped, its branch was not taken"
    )
