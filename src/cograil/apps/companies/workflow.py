"""The pipeline as a workflow: three sources one after the other, then what is known, then the verdict.

For the engine every source may fail and what follows runs all the same. Which of them a company cannot do
without is for the verdict to say. Where none of them answered, the last node fails the job, for operators.
"""

from __future__ import annotations

from cograil.apps.companies.constants import INPI, RCS, RECHERCHE

APP = "companies"
WORKFLOW_ID = "cograil.companies"
QUEUE = "companies"
CONCURRENCY = 20  # runs of a tenant at a time; the others are PENDING, and hold no lock
NODES = {RECHERCHE: "recherche", INPI: "inpi", RCS: "rcs"}  # which asks a source
BEGIN, FETCH, MERGE, EVALUATE, REPORT = (
    f"companies.{step}" for step in ("begin", "fetch", "merge", "evaluate", "report")
)

_ASKED = 'siren: "{{ inputs.siren }}", request_id: "{{ inputs.request_id }}"'
_COMMON = _ASKED + ', fence: "{{ nodes.begin.output.fence }}"'


def _ended(source: str) -> str:
    """The status of a source, as a parameter of the following nodes."""
    node = NODES[source]
    status, error = f"{{{{ nodes.{node}.status }}}}", f"{{{{ nodes.{node}.error }}}}"
    return f'{{source: {source}, status: "{status}", error: "{error}"}}'


def _source(source: str, after: str, ended: str) -> str:
    return f"""\
  {NODES[source]}:
    handler: {FETCH}
    queue: {QUEUE}
    required: false
    depends_on: [{after}]
    when: "{{{{ nodes.begin.output.sources contains '{source}' }}}}"
    params:
      {{source: {source}, siret: "{{{{ inputs.siret }}}}", ended: [{ended}], {_COMMON}}}
    timeout_seconds: 30
    retry: {{max_attempts: 3, backoff: exponential, initial_delay_seconds: 0.25, max_delay_seconds: 10}}
"""


_FIRST, _SECOND, _THIRD = _ended(RECHERCHE), _ended(INPI), _ended(RCS)

WORKFLOW = f"""\
workflow_id: {WORKFLOW_ID}
version: 2
name: One company, asked for at /v1/requests
limits: {{concurrency: {CONCURRENCY}}}
inputs:
  siren: {{type: string}}
  siret: {{type: string, required: false}}
  request_id: {{type: string, required: false}}
nodes:
  begin:
    handler: {BEGIN}
    queue: {QUEUE}
    params: {{{_ASKED}}}
    timeout_seconds: 30
    retry: {{max_attempts: 10, backoff: fixed, initial_delay_seconds: 1}}
{_source(RECHERCHE, "begin", "")}\
{_source(INPI, "begin, recherche", _FIRST)}\
{_source(RCS, "begin, recherche, inpi", f"{_FIRST}, {_SECOND}")}\
  merge:
    handler: {MERGE}
    queue: {QUEUE}
    depends_on: [begin, recherche, inpi, rcs]
    params: {{ended: [{_FIRST}, {_SECOND}, {_THIRD}], {_COMMON}}}
    timeout_seconds: 30
    retry: {{max_attempts: 10, backoff: fixed, initial_delay_seconds: 1}}
    next: evaluate
  evaluate:
    handler: {EVALUATE}
    queue: {QUEUE}
    params: {{turn: "{{{{ nodes.begin.output.turn }}}}", {_COMMON}}}
    timeout_seconds: 30
    retry: {{max_attempts: 10, backoff: fixed, initial_delay_seconds: 1}}
    next: report
  report:
    handler: {REPORT}
    queue: {QUEUE}
    when: "{{{{ nodes.evaluate.output.is_unreachable }}}}"
    params: {{{_ASKED}, error: "{{{{ nodes.evaluate.output.enrichment_error }}}}"}}
    timeout_seconds: 30
    retry: {{max_attempts: 1}}
"""
