"""Suggestions are bounded: by the number of full comparisons, which are what takes long."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import pytest

from cograil.definitions import read_workflow
from cograil.definitions.hints import Hints
from cograil.definitions.inputs import unknown_inputs
from cograil.errors import InvalidInput, InvalidWorkflow
from cograil.intake.http.jobs import NewJob
from cograil.intake.http.reading import as_model

NAMES = [f"parameter_number_{index}" for index in range(300)]
MAX_COMPARISONS = 100  # for one request or document: ten milliseconds


class Counter:
    """Counts the words that are compared with another one by edit distance."""

    def __init__(self) -> None:
        self.count = 0


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    counter = Counter()
    set_word = difflib.SequenceMatcher.set_seq1

    def count(matcher: difflib.SequenceMatcher[str], word: str) -> None:
        counter.count += word != ""  # a new matcher begins with an empty one
        set_word(matcher, word)

    monkeypatch.setattr(difflib.SequenceMatcher, "set_seq1", count)
    yield counter
    assert counter.count > 0, "nothing was counted"


def test_thousands_of_misspelt_inputs_are_compared_with_few_names(comparisons: Counter) -> None:
    problems = unknown_inputs([f"paramter_numbr_{index}" for index in range(9_900)], dict.fromkeys(NAMES))  # type: ignore[arg-type]
    assert "did you mean 'parameter_number_" in problems[0].message
    assert comparisons.count <= MAX_COMPARISONS


def test_the_jobs_of_a_batch_share_their_suggestions(comparisons: Counter) -> None:
    hints = Hints()
    for _ in range(900):
        unknown_inputs([f"paramter_numbr_{index}" for index in range(40)], dict.fromkeys(NAMES), hints)  # type: ignore[arg-type]
    assert comparisons.count <= MAX_COMPARISONS


def test_a_thousand_nodes_with_a_misspelt_next_are_compared_with_few_names(comparisons: Counter) -> None:
    nodes = "".join(f"  node_number_{i}: {{handler: echo, next: nod_numbr_{i}}}\n" for i in range(999))
    with pytest.raises(InvalidWorkflow, match="did you mean"):
        read_workflow(f"workflow_id: w\nnodes:\n{nodes}")
    assert comparisons.count <= MAX_COMPARISONS


def test_a_body_with_many_unknown_fields_is_compared_with_few_names(comparisons: Counter) -> None:
    hints = Hints()
    for _ in range(1_000):
        with pytest.raises(InvalidInput):
            as_model({"workflow_id": "w"} | {f"priorty{index}": 1 for index in range(60)}, NewJob, hints)
    assert comparisons.count <= MAX_COMPARISONS
