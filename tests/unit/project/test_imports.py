"""Imports go one way: jobs -> sandbox -> pipelines -> udfs; no circle between folders; and one importable name."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tools import folders

ROOT = Path(__file__).parents[3]
PREFIX = "kafka_telemetry_lake."
LAYERS = ("udfs", "pipelines", "sandbox", "jobs", "dashboards")
FORBIDDEN = {
    "udfs": {"pipelines", "sandbox", "jobs", "dashboards", "tests", "pyspark", "deltalake"},
    "pipelines": {"sandbox", "jobs", "dashboards", "tests"},
    "sandbox": {"jobs", "dashboards", "tests"},
    "jobs": {"tests", "benchmarks"},
    "dashboards": {"jobs", "sandbox", "tests"},
}


def _modules(*tops: str) -> dict[str, Path]:
    """Dotted name below the repository's top of each module and package."""
    files = [file for top in tops for file in (ROOT / top).rglob("*.py")]
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def _import_statements(file: Path) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(_tree(file)) if isinstance(node, (ast.Import, ast.ImportFrom))]


def _imported(file: Path, modules: Iterable[str] = ()) -> set[str]:
    """What a file imports, without the project's prefix; a name is a module where `modules` has it."""
    names: set[str] = set()
    for node in _import_statements(file):
        if isinstance(node, ast.Import):
            names |= {alias.name.removeprefix(PREFIX) for alias in node.names}
        elif node.module:
            package = f"{node.module}.".removeprefix(PREFIX).removesuffix(".")
            full = [f"{package}.{alias.name}".removeprefix(".") for alias in node.names]
            names |= {name if name in modules else package or name for name in full}
    return names


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_imports_go_one_way(package: str) -> None:
    wrong = {
        name: sorted(above)
        for name, file in _modules(package).items()
        if (above := {each.split(".")[0] for each in _imported(file)} & FORBIDDEN[package])
    }
    assert wrong == {}


def test_no_circle_between_folders() -> None:
    modules = _modules(*LAYERS, "benchmarks", "tests")

    def folder(name: str) -> str:
        """The package of a module; a module right below a layer is a room of its own."""
        parent = name.rpartition(".")[0]
        return name if modules[name].name == "__init__.py" or parent in ("", *LAYERS, "benchmarks") else parent

    needs: dict[str, set[str]] = {}
    for name, file in modules.items():
        found = {folder(each) for each in _imported(file, modules.keys()) if each in modules}
        needs.setdefault(folder(name), set()).update(found - {folder(name)})
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(f"these folders import each other: {error.args[1]}")


def test_the_drawn_folders_are_those_of_the_sources() -> None:
    text = folders.PAGE.read_text("utf-8")
    assert folders.with_picture(text) == text, "run python -m tools.folders"


def test_a_folder_is_drawn_above_those_that_it_imports_from(tmp_path: Path) -> None:
    for name, text in {
        "udfs/a/one.py": "",
        "udfs/two.py": "from kafka_telemetry_lake.udfs.a.one import x",
        "pipelines/b/three.py": "def late(): from kafka_telemetry_lake.udfs import two",
        "jobs/four.py": "import kafka_telemetry_lake.pipelines.b.three",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert folders.floors(folders.folders(tmp_path)) == {"udfs/a": 0, "udfs/two.py": 1, "pipelines/b": 2, "jobs": 3}
    (tmp_path / "udfs/a/one.py").write_text("from kafka_telemetry_lake.udfs.two import x")
    with pytest.raises(CycleError):
        folders.picture(tmp_path)


def test_a_class_name_means_one_thing_and_a_folder_can_be_surveyed() -> None:
    """A few names are alike, each private to its subject; a reader sees the files of a folder at once."""
    product = {name: file for name, file in _modules(*LAYERS).items() if not name.startswith("sandbox")}
    classes = [node.name for file in product.values() for node in _tree(file).body if isinstance(node, ast.ClassDef)]
    assert len([name for name, times in Counter(classes).items() if times > 1]) <= 8
    sizes = Counter(file.parent for file in product.values() if file.name != "__init__.py")
    assert {folder: size for folder, size in sizes.items() if size > 25} == {}


def test_only_one_name_is_installed() -> None:
    everywhere = {**_modules(*LAYERS, "benchmarks", "tests"), "conftest": ROOT / "tests" / "conftest.py"}
    for name, file in everywhere.items():
        for node in _import_statements(file):
            if isinstance(node, ast.ImportFrom):
                assert node.level or (node.module or "").split(".")[0] not in (*LAYERS, "sql"), name
            else:
                assert not {alias.name.split(".")[0] for alias in node.names} & {*LAYERS, "sql"}, name


@pytest.mark.parametrize(
    ("module", "not_needed"),
    [
        ("pipelines.lifecycle.follower", "pyspark"),  # the demo's own process reads the lifecycle while its job runs
        ("pipelines.forget.subject", "udfs.otlp.decode"),  # `forget`, `maintain`, `reshard` and `doctor` decode nothing
    ],
)
def test_a_start_loads_nothing_that_it_doesn_t_need(module: str, not_needed: str) -> None:
    modules = _modules(*LAYERS)
    reached, left = {module}, [module]
    while left:
        for each in _imported(modules[left.pop()], modules) - reached:
            reached.add(each)
            left += [each] if each in modules else []
    assert not [each for each in reached if f"{each}.".startswith(f"{not_needed}.")]


def _bound(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def test_no_module_binds_a_name_twice() -> None:
    """As two modules leave it that were put together: one of their constants is then the other's."""
    found = {}
    for module, file in _modules(*LAYERS, "tools", "benchmarks").items():
        names = [name for node in _tree(file).body for name in _bound(node)]
        if twice := {name for name in names if names.count(name) > 1}:
            found[module] = twice
    assert found == {}
