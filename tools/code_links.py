"""Which top-level names of the repository's Python files use which, read from the sources: nothing is imported.

A use is a name, an attribute of a module, an import (in a function too), a pytest fixture, a string that holds
``kafka_telemetry_lake.<module>.<name>`` or the name of a module that ``python -m`` runs, or a word that is a command of
`telemetry-lake` where tests start commands.
A name that is used takes its module's statements with it, which run when the module is imported; a class is one name.
What only annotations under ``TYPE_CHECKING`` need is no use.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

PREFIX = "kafka_telemetry_lake."
Name = tuple[str, str]  # module and top-level name; "" are the module's other statements, "*" is all of it
_STARTED = r"(?:tests|tools|benchmarks)\."  # their modules have no prefix
_PRODUCT = ("udfs", "pipelines", "jobs", "dashboards")


def module_of(path: str) -> str:
    """The dotted name of a file relative to the repository."""
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


@dataclass
class Module:
    """A file's top-level statements by the name that they define."""

    package: str
    defined: dict[str, list[ast.AST]] = field(default_factory=dict)
    imported: dict[str, str] = field(default_factory=dict)  # local name to dotted name
    other: list[ast.AST] = field(default_factory=list)

    @classmethod
    def of(cls, path: str, source: str) -> Module:
        dotted = module_of(path)
        module = cls(dotted if path.endswith("__init__.py") else dotted.rpartition(".")[0])
        module._read(ast.parse(source).body)
        return module

    def _read(self, statements: Iterable[ast.stmt]) -> None:
        for each in statements:
            if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING":
                continue
            names: Iterable[str] = ()
            match each:
                case ast.Import() | ast.ImportFrom():
                    self.imported |= self.imports(each)
                    continue
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    names = [each.name]
                case ast.Assign() | ast.AnnAssign():
                    targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                    names = [leaf.id for one in targets for leaf in ast.walk(one) if isinstance(leaf, ast.Name)]
                case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                    names = ["__main__"]
                case ast.If() | ast.Try() | ast.With():
                    for branch in ("body", "orelse", "finalbody"):
                        self._read(getattr(each, branch, ()))
                    for handler in getattr(each, "handlers", ()):
                        self._read(handler.body)
            for name in names:
                self.defined.setdefault(name, []).append(each)
            if not names:
                self.other.append(each)

    def imports(self, node: ast.Import | ast.ImportFrom) -> dict[str, str]:
        """Local name to dotted name of what a statement imports."""
        if isinstance(node, ast.Import):
            return {each.asname or each.name.split(".")[0]: each.name for each in node.names}
        parts = self.package.split(".")[: len(self.package.split(".")) + 1 - node.level] if node.level else []
        base = ".".join([*parts, *([node.module] if node.module else [])])
        return {each.asname or each.name: f"{base}.{each.name}" for each in node.names}

    def differing(self, other: Module) -> set[str]:
        """The names whose definitions aren't the same; comments and the order of definitions make no difference."""
        mine, others = ({name: list(map(ast.dump, nodes)) for name, nodes in each._all()} for each in (self, other))
        return {name for name in mine.keys() | others.keys() if mine.get(name) != others.get(name)}

    def _all(self) -> Iterator[tuple[str, list[ast.AST]]]:
        yield from self.defined.items()
        yield "", [each for each in self.other if not _is_text(each)]


def strings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Strings in these statements, without docstrings."""
    for top in nodes:
        texts = {id(each.value) for each in ast.walk(top) if isinstance(each, ast.Expr) and _is_text(each)}
        for each in ast.walk(top):
            if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in texts:
                yield each.value


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


class Links:
    """Uses between the names of these files, given as path (relative to the repository) to source."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self.modules = {module_of(path): Module.of(path, source) for path, source in sources.items()}
        self.names = {
            (module, name)
            for module, each in self.modules.items()
            for name in (*each.defined, *each.imported, "", "*")
        }  # fmt: skip
        self._uses: dict[Name, set[Name]] = {}

    def resolve(self, dotted: str) -> Name | None:
        """The name that a dotted name stands for, "" for a module, or None if it is none of these files'."""
        full = module = dotted.removeprefix(PREFIX)
        while module not in self.modules:
            if "." not in module:
                return None
            module = module.rpartition(".")[0]
        name = full[len(module) + 1 :].split(".")[0]
        return (module, name) if (module, name) in self.names else (module, "*")

    def uses(self, name: Name) -> set[Name]:
        """What a name uses itself."""
        if name not in self._uses:
            self._uses[name] = {each for each in self._found(name) if each != name}
        return self._uses[name]

    def _found(self, name: Name) -> Iterator[Name]:
        module, own = self.modules[name[0]], name[1]
        if own == "*":
            yield from ((name[0], each) for each in (*module.defined, ""))
            return
        if own:
            yield (name[0], "")
        else:  # an import runs the statements of the module and of its packages
            dotted = [*module.imported.values(), name[0].rpartition(".")[0]]
            yield from ((found[0], "") for each in dotted if (found := self.resolve(each)))
        if own in module.imported and (found := self.resolve(module.imported[own])):
            yield found
        nodes = module.defined.get(own, module.other if not own else [])
        yield from self._references(name[0], module, nodes)
        for text in strings(nodes):
            for dotted in re.findall(rf"\b(?:{re.escape(PREFIX)}|{_STARTED})[\w.]*\w", text):
                if found := self.resolve(dotted):
                    yield found if found[1] else (found[0], "*")
            if not name[0].startswith(_PRODUCT):
                for word in [text, *re.findall(r"telemetry-lake ([\w-]+)", text)]:
                    command = word.replace("-", "_")
                    job, settings = f"jobs.{command}", f"jobs.settings.{command}"
                    if {job, settings} <= self.modules.keys():
                        yield from ((job, "run_job"), (settings, "*"))

    def _references(self, dotted: str, module: Module, nodes: list[ast.AST]) -> Iterator[Name]:
        inside = [each for top in nodes for each in ast.walk(top)]
        known = dict(module.imported)
        for each in inside:
            if isinstance(each, (ast.Import, ast.ImportFrom)):
                known |= module.imports(each)
                yield from filter(None, map(self.resolve, module.imports(each).values()))
        parts = {id(each.value) for each in inside if isinstance(each, ast.Attribute)}
        for each in inside:
            if id(each) in parts:
                continue
            if isinstance(each, ast.arg) and dotted.startswith("tests."):
                yield from self._fixture(dotted, each.arg)
            elif isinstance(each, ast.Name) and each.id in module.defined:
                yield (dotted, each.id)
            elif isinstance(each, (ast.Name, ast.Attribute)):
                first, _, rest = ast.unparse(each).partition(".")
                if first in known and (found := self.resolve(f"{known[first]}.{rest}".removesuffix("."))):
                    yield found if found[1] else (found[0], "*")

    def conftests(self, dotted: str) -> list[str]:
        """The conftest modules that a test file has, the nearest first."""
        parts = dotted.split(".")[:-1]
        places = [".".join([*parts[: len(parts) - up], "conftest"]) for up in range(len(parts))]
        return [each for each in places if each in self.modules]

    def _fixture(self, dotted: str, name: str) -> Iterator[Name]:
        """The fixture of this name that a test sees: the nearest."""
        places = [dotted, *self.conftests(dotted)]
        yield from [(each, name) for each in places if name in self.modules[each].defined][:1]

    def reached(self, start: Name) -> dict[Name, Name]:
        """All that a name uses, and what these use, each with the name that it was first met in: nearest first."""
        met = {start: start}
        for each in (queue := [start]):
            for found in self.uses(each):
                if found not in met:
                    met[found] = each
                    queue.append(found)
        return met
