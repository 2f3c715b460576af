"""Every point the source can reach, derived from the source: `<transaction>.<statement>` and the commits.

Transactions are the literals given to `db.transaction(..)` and `db.single(..)`. From the body of each such
block every function that is named there is followed, through imports, to the statements it names. That is
more than can happen (a function is followed whatever its arguments), and never less: the test holds what
was really passed against it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import cograil

ROOT = Path(cograil.__file__).parent
APP = Path(__file__).with_name("app.py")  # the primitives run in the transactions of apps
OPENERS = {"transaction": ("commit.before", "commit.after"), "single": ("commit.after",)}
# The transaction of a handler is begun in one function and committed in another, after this one.
ASKED_IN = {"handler": ("cograil.store.task_queries", "report_in_transaction")}
# What a key ring looks up it is given as a function.
HANDED_IN = {"keys": (("cograil.store.api_keys", "find_key"), ("cograil.store.api_keys", "has_keys"))}
Key = tuple[str, str]  # module, function or Class.method


@dataclass
class Module:
    """What the names of one file mean."""

    name: str
    imports: dict[str, Key] = field(default_factory=dict)  # local name -> module and member
    statements: dict[str, str] = field(default_factory=dict)  # constant -> statement
    functions: dict[str, ast.AST] = field(default_factory=dict)
    methods_of: dict[ast.AST, str] = field(default_factory=dict)  # function -> its class


@cache
def reachable_points() -> frozenset[str]:
    """All points of all transactions of the source."""
    source = Source()
    points = {f"{block.name}.{point}" for block in source.blocks() for point in source.points_of(block)}
    return frozenset(points | source.literal_points)


@dataclass(frozen=True)
class Block:
    """The body of one transaction."""

    name: str
    module: Module
    owner: str  # the class it stands in, if any
    body: tuple[ast.AST, ...]
    commits: tuple[str, ...]


class Source:
    """All files of the package, and who names whom in them."""

    def __init__(self) -> None:
        self.modules: dict[str, Module] = {}
        self.methods: dict[str, list[Key]] = {}  # by name, those that are given a transaction
        self.literal_points: set[str] = set()  # those of connections outside any pool
        for path in sorted(ROOT.rglob("*.py")):
            parts = ["cograil", *path.relative_to(ROOT).with_suffix("").parts]
            name = ".".join(parts).removesuffix(".__init__")
            self.modules[name] = self._read(name, ast.parse(path.read_text("utf-8")))
        self.modules["app"] = self._read("app", ast.parse(APP.read_text("utf-8")))

    def _read(self, name: str, tree: ast.Module) -> Module:
        module = Module(name)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cograil"):
                for alias in node.names:
                    module.imports[alias.asname or alias.name] = (str(node.module), alias.name)
            elif point := _literal(node, "fault_injection.point", 1):
                self.literal_points.add(point)
        for top in tree.body:
            if isinstance(top, ast.Assign) and (statement := _statement(top.value)) is not None:
                module.statements[ast.unparse(top.targets[0])] = statement
            elif isinstance(top, ast.FunctionDef | ast.AsyncFunctionDef):
                module.functions[top.name] = top
            elif isinstance(top, ast.ClassDef):
                self._read_class(module, top)
        return module

    def _read_class(self, module: Module, class_def: ast.ClassDef) -> None:
        for method in class_def.body:
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                module.functions[f"{class_def.name}.{method.name}"] = method
                module.methods_of[method] = class_def.name
                if "tx" in [argument.arg for argument in method.args.args]:
                    self.methods.setdefault(method.name, []).append(
                        (module.name, f"{class_def.name}.{method.name}")
                    )

    # -- transactions --------------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block]:
        """Every block that opens a transaction, and those on connections of their own."""
        for module in self.modules.values():
            for function in module.functions.values():
                owner = module.methods_of.get(function, "")
                for node in ast.walk(function):
                    if isinstance(node, ast.AsyncWith):
                        for name, opener in _opened(node):
                            yield Block(name, module, owner, tuple(node.body), OPENERS[opener])
                    elif own := _literal(node, "Transaction", 2):
                        yield Block(own, module, owner, (function,), OPENERS["single"])
                    elif (own := _literal(node, "HandlerSession", 2)) in ASKED_IN:
                        yield self._of_handlers(str(own))

    def _of_handlers(self, name: str) -> Block:
        module, function = ASKED_IN[name]
        body = self.modules[module].functions[function]
        return Block(name, self.modules[module], "", (body,), OPENERS["transaction"])

    def points_of(self, block: Block) -> set[str]:
        """The statements and commits of this block."""
        points, seen = set(block.commits), set[Key]()
        open_ends = list(self._named(block.module, block.owner, block.body, points))
        open_ends += HANDED_IN.get(block.name, ())
        while open_ends:
            key = open_ends.pop()
            if key not in seen:
                seen.add(key)
                module = self.modules[key[0]]
                function = module.functions[key[1]]
                owner = module.methods_of.get(function, "")
                open_ends += self._named(module, owner, (function,), points)
        return points

    # -- names ---------------------------------------------------------------------------------------

    def _named(
        self, module: Module, owner: str, body: Iterable[ast.AST], statements: set[str]
    ) -> Iterator[Key]:
        """The functions named here; the statements named here are added."""
        for top in body:
            for node in ast.walk(top):
                if isinstance(node, ast.Name) and node.id in module.statements:
                    statements.add(module.statements[node.id])
                elif isinstance(node, ast.Name):
                    yield from self._function(module.name, node.id)
                elif isinstance(node, ast.Attribute):
                    yield from self._attribute(module, owner, node)
                elif isinstance(node, ast.Call):
                    statements.update(filter(None, [_statement(node)]))
                    yield from self._method(node)

    def _function(self, module_name: str, name: str) -> Iterator[Key]:
        """Follow imports to where this function is defined."""
        module = self.modules.get(module_name)
        if module is None:
            return
        if name in module.functions:
            yield (module_name, name)
        elif name in module.imports:
            yield from self._function(*module.imports[name])

    def _attribute(self, module: Module, owner: str, node: ast.Attribute) -> Iterator[Key]:
        """`module.function` and `self.method`."""
        of = node.value.id if isinstance(node.value, ast.Name) else ""
        if of == "self" and owner:
            yield from self._function(module.name, f"{owner}.{node.attr}")
        elif of in module.imports:
            yield from self._function(".".join(module.imports[of]), node.attr)

    def _method(self, call: ast.Call) -> list[Key]:
        """`anything.method(tx)`: whose method that is nobody says, so all of this name."""
        is_given = any(isinstance(argument, ast.Name) and argument.id == "tx" for argument in call.args)
        return (
            self.methods.get(call.func.attr, []) if is_given and isinstance(call.func, ast.Attribute) else []
        )


def _statement(node: ast.AST) -> str | None:
    """The name in `statement("name", ...)`."""
    return _literal(node, "statement", 1)


def _literal(node: ast.AST, function: str, position: int) -> str | None:
    """The text given to this function at this position, from 1."""
    if isinstance(node, ast.Call) and len(node.args) >= position:
        argument = node.args[position - 1]
        if isinstance(argument, ast.Constant) and ast.unparse(node.func) == function:
            return str(argument.value)
    return None


def _opened(node: ast.AsyncWith) -> Iterator[tuple[str, str]]:
    """The transactions that this statement opens, and how."""
    for item in node.items:
        call = item.context_expr
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in OPENERS:
            name = _literal(call, ast.unparse(call.func), 1)
            if name is not None:
                yield name, call.func.attr
