"""From a workflow file to a checked `Workflow`, and the expressions that stand in it.

    read_workflow   YAML text    -> Workflow     reading, section, inputs, limits, nodes, branches,
    load_workflow   stored JSON  -> Workflow     waiting, http, approvals, forms, subworkflows
                                                 (drafts: nodes before their edges are known)
                                                 edges, graph, checks: who waits for whom
    apply_inputs    what a job is given, with the defaults of its workflow
    schema          the JSON Schema of the file format, for editors

Templates and conditions are compiled here (templates, conditions and what is under them) and
rendered by whoever has the values. No clock, no database, no network: the same text gives the same
workflow everywhere. Handlers are only names here.
"""

from __future__ import annotations

from cograil.definitions.inputs_section import apply_inputs
from cograil.definitions.json_schema import schema
from cograil.definitions.workflow_file import load_workflow, read_workflow

__all__ = ["apply_inputs", "load_workflow", "read_workflow", "schema"]
