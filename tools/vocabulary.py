"""Check the words of the code: `python -m tools.vocabulary`, part of `make check`.

Modules and variables are nouns, limits are MAX_ and MIN_, rows are read by name, a class name means one thing,
and prose says "is not a". Every finding fails the check; the exceptions are in this file, each with its reason.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "tests", "bench", "tools", "examples")
PROSE_FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "examples")
VAGUE_NAMES = frozenset({"found", "one", "told", "given", "asked", "said"})
# Nouns of the field, not participles.
ING_MODULES = frozenset(
    {
        "testing",
        "tracing",
        "routing",
        "request_parsing",
        "input_parsing",
        "rendering",
        "signing",
        "formatting",
    }
)
# Public classes that share their name with another public class, and why.
SAME_NAMES = {
    "src/cograil/testing/handler_context.py:Context": "handlers under test take it for `cograil.Context`",
    "src/cograil/testing/handler_context.py:LogLine": "a line of `ctx.log` in a test; the other is one of the API",
    "src/cograil/testing/run_result.py:Call": "a call of a handler in a test; the other is a request to the API",
    "src/cograil/verbs/idempotency.py:Conflict": "a decision, not raised; documented next to New, Replay and Held",
    "src/cograil/model/workflow.py:Workflow": "the workflow itself; the other is its document in the API",
}
OLD_LIMIT = re.compile(r"^_?(MOST|LONGEST|FEWEST|LARGEST|SHORTEST)_")
# "There is no leader" is plain English; "a string is no template" is not.
PROSE = re.compile(
    r"\b((?<!there )is no (?!longer\b|more\b|other\b|need\b|way\b)\w+|whoever|so many)\b", re.I
)
ROW_NAMES = frozenset({"row", "record", "fetched"})


class Finding(NamedTuple):
    """One place that breaks a rule."""

    rule: str
    file: str
    line: int
    text: str


def main() -> int:
    """Print every finding; return the exit code of the command."""
    findings = list(find_all())
    for rule, file, line, text in findings:
        print(f"{file}:{line}: {rule}: {text}")
    if not findings:
        print("no findings")
        return 0
    counts = Counter(finding.rule for finding in findings)
    print(", ".join(f"{rule} {count}" for rule, count in sorted(counts.items())))
    print("use other words: the rules are in the docstring of tools/vocabulary.py")
    return 1


def find_all() -> Iterator[Finding]:
    """Yield everything that breaks a rule, in all files of the repository."""
    trees = {str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8")) for path in _python_files()}
    for file, tree in trees.items():
        yield from _check_module(file)
        yield from _check_names(file, tree)
        yield from _check_prose(file)
    yield from _check_classes({file: tree for file, tree in trees.items() if file.startswith("src/")})
    for path in _prose_files():
        yield from _check_prose(str(path.relative_to(ROOT)))


def _python_files() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "client/_sync" not in str(path) and path != Path(__file__):
                yield path


def _prose_files() -> Iterator[Path]:
    for name in PROSE_FILES:
        path = ROOT / name
        yield from sorted(path.rglob("*.md")) if path.is_dir() else [path]


def _check_module(file: str) -> Iterator[Finding]:
    name = Path(file).stem
    if name.endswith("ing") and name not in ING_MODULES and not name.startswith("test_"):
        yield Finding("ing-module", file, 1, name)


def _check_names(file: str, tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if name in VAGUE_NAMES:
                yield Finding("vague-name", file, node.lineno, name)
            case ast.arg(arg=name) if name in VAGUE_NAMES:
                yield Finding("vague-name", file, node.lineno, name)
            case ast.Name(id=name, ctx=ast.Store()) if OLD_LIMIT.match(name):
                yield Finding("limit-name", file, node.lineno, f"{name}: use MAX_ or MIN_")
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int()) | ast.Slice()) if (
                name in ROW_NAMES
            ):
                yield Finding("positional-row", file, node.lineno, ast.unparse(node))


def _check_classes(trees: dict[str, ast.Module]) -> Iterator[Finding]:
    """Public classes with the name of another one, and exceptions in SAME_NAMES without a class."""
    first: dict[str, str] = {}
    exceptions = set(SAME_NAMES)
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            if f"{file}:{node.name}" in SAME_NAMES:
                exceptions.discard(f"{file}:{node.name}")
            elif node.name in first:
                yield Finding(
                    "duplicate-class", file, node.lineno, f"{node.name} is also in {first[node.name]}"
                )
            else:
                first[node.name] = file
    for place in sorted(exceptions):
        yield Finding(
            "duplicate-class", "tools/vocabulary.py", 1, f"SAME_NAMES has {place}, which does not exist"
        )


def _check_prose(file: str) -> Iterator[Finding]:
    for number, line in enumerate((ROOT / file).read_text("utf-8").splitlines(), 1):
        for match in PROSE.finditer(line):
            yield Finding("prose", file, number, match[0])


if __name__ == "__main__":
    sys.exit(main())
