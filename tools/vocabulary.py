"""Check the words of the code: `python -m tools.vocabulary`, part of `make check`.

The rules are those of docs on style: modules are nouns, variables are nouns, limits are MAX_ and MIN_, rows have
names, a class name means one thing, and prose says "is not a". What broke a rule when it was introduced is counted
per rule and file in `vocabulary_debt.json`: a count may fall and never rise. `--write` records what is there now,
and refuses to record more than before.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DEBT = Path(__file__).with_name("vocabulary_debt.json")
FOLDERS = ("src", "tests", "bench", "tools", "examples")
PROSE_FILES = ("README.md", "CHANGELOG.md", "docs")
VAGUE_NAMES = frozenset({"found", "one", "told", "given", "asked", "said"})
ING_MODULES = frozenset(
    {"testing", "tracing", "routing", "request_parsing", "input_parsing", "rendering", "signing"}
)
OLD_LIMIT = re.compile(r"^_?(MOST|LONGEST|FEWEST|LARGEST|SHORTEST)_")
PROSE = re.compile(r"\b(is no (?!longer\b|more\b|other\b|need\b|way\b)\w+|whoever|so many)\b", re.I)
ROW_NAMES = frozenset({"row", "record", "fetched"})

Finding = tuple[str, str, int, str]  # rule, file, line, what


def main(arguments: list[str]) -> int:
    """Compare what is there with what was recorded; return the exit code of the command."""
    findings = list(find_all())
    counts = count_findings(findings)
    recorded: dict[str, dict[str, int]] = json.loads(DEBT.read_text()) if DEBT.exists() else {}
    worse = {
        (rule, file)
        for rule, files in counts.items()
        for file, count in files.items()
        if DEBT.exists() and count > recorded.get(rule, {}).get(file, 0)
    }
    for rule, file, line, text in findings:
        if (rule, file) in worse or "--all" in arguments:
            print(f"{file}:{line}: {rule}: {text}")
    print(
        ", ".join(f"{rule} {sum(files.values())}" for rule, files in sorted(counts.items())) or "no findings"
    )
    if worse:
        print(f"{len(worse)} files use more such words than before: see the style rules in CONTRIBUTING.md")
        return 1
    if "--write" in arguments:
        DEBT.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")
    return 0


def count_findings(findings: list[Finding]) -> dict[str, dict[str, int]]:
    """Return how often each rule is broken in each file."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for rule, file, _, _ in findings:
        counts[rule][file] += 1
    return {rule: dict(files) for rule, files in counts.items()}


def find_all() -> Iterator[Finding]:
    """Yield everything that breaks a rule, in all files of the repository."""
    classes: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path in _python_files():
        file, tree = str(path.relative_to(ROOT)), ast.parse(path.read_text("utf-8"))
        yield from _check_module(file, path)
        yield from _check_names(file, tree)
        yield from _check_prose(file, path.read_text("utf-8"))
        if file.startswith("src/"):
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    classes[node.name].append((file, node.lineno))
    for name, places in sorted(classes.items()):
        for file, line in places[1:]:
            yield "duplicate-class", file, line, f"{name} is also in {places[0][0]}"
    for path in _prose_files():
        yield from _check_prose(str(path.relative_to(ROOT)), path.read_text("utf-8"))


def _python_files() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "client/_sync" not in str(path) and path != Path(__file__):
                yield path


def _prose_files() -> Iterator[Path]:
    for name in PROSE_FILES:
        path = ROOT / name
        yield from sorted(path.rglob("*.md")) if path.is_dir() else [path]


def _check_module(file: str, path: Path) -> Iterator[Finding]:
    if path.stem.endswith("ing") and path.stem not in ING_MODULES and not path.stem.startswith("test_"):
        yield "ing-module", file, 1, path.stem


def _check_names(file: str, tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if name in VAGUE_NAMES:
                yield "vague-name", file, node.lineno, name
            case ast.arg(arg=name) if name in VAGUE_NAMES:
                yield "vague-name", file, node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) if OLD_LIMIT.match(name):
                yield "limit-name", file, node.lineno, f"{name}: use MAX_ or MIN_"
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int()) | ast.Slice()) if (
                name in ROW_NAMES
            ):
                yield "positional-row", file, node.lineno, ast.unparse(node)


def _check_prose(file: str, text: str) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        for match in PROSE.finditer(line):
            yield "prose", file, number, match[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
