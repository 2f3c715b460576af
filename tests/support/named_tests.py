"""Tests and bad inputs that tables name as `file::test`, or as `file::CORPUS[entry]`."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent.parent


def missing_tests(names: Iterable[str]) -> list[str]:
    """Those of these that there are not."""
    return [name for name in names if name.partition("::")[2] not in names_in_file(name.partition("::")[0])]


@cache
def names_in_file(file: str) -> frozenset[str]:
    """The functions of a file, and the entries of its dictionaries by their keys."""
    names = set()
    for statement in ast.parse((TESTS / file).read_text()).body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(statement.name)
            case ast.AnnAssign(target=ast.Name(id=corpus), value=ast.Dict(keys=keys)):
                names |= {f"{corpus}[{key.value!s}]" for key in keys if isinstance(key, ast.Constant)}
    return frozenset(names)
