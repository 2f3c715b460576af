"""Workflow files and expressions: from YAML text to a checked `Workflow`.

    read_workflow   YAML text to Workflow; load_workflow: stored JSON document to Workflow
    apply_inputs    the inputs of a job, completed by the defaults of its workflow
    schema          the JSON Schema of the file format, for editors

yaml_loader parses the text, mapping_reader reads one mapping, `*_section` and `*_node` read its parts,
unlinked_nodes holds nodes before their edges are known, edges, graph and checks verify the whole workflow, and
diagnostics collects problems. Expressions pass through lexer, parser, evaluation and operators.

The same text gives the same workflow everywhere: it uses no clock, no database and no network. Handlers
are only names.
"""

from __future__ import annotations

from cograil.definitions.inputs_section import apply_inputs
from cograil.definitions.workflow_file import load_workflow, read_workflow, schema

__all__ = ["apply_inputs", "load_workflow", "read_workflow", "schema"]
