"""``python -m tools.folders``: draw the product's folders in CONTRIBUTING.md, each above those that it imports from.

A folder's floor is one more than the highest of those that it imports from, so that an import that goes up, or in a
circle, can't be drawn. A module right below `pipelines` or `udfs` stands for itself.
"""

from __future__ import annotations

import ast
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
PREFIX = "kafka_telemetry_lake."
LAYERS = ("udfs", "pipelines", "jobs", "dashboards")
BEGIN, END = "<!-- python -m tools.folders -->\n", "<!-- end of the folders -->"
WIDTH = 100


def folders(root: Path = ROOT) -> dict[str, set[str]]:
    """Each folder with Python files, as ``pipelines/lake``, and the other folders that its files import from."""
    modules = {
        ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): file
        for layer in LAYERS
        for file in (root / layer).rglob("*.py")
    }
    homes = {name: home(file.relative_to(root)) for name, file in modules.items()}
    found: dict[str, set[str]] = {home: set() for home in homes.values()}
    for name, file in modules.items():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module]
            dotted = (each.removeprefix(PREFIX) for each in names)
            found[homes[name]] |= {homes[each] for each in dotted if each in homes} - {homes[name]}
    packages = {"pipelines", "udfs"}  # which have no code
    return {home: needed - packages for home, needed in found.items() if home not in packages}


def home(file: Path) -> str:
    """The folder that a file is drawn in."""
    if file.parts[0] == "dashboards":
        return "dashboards"  # its modules and their screens import each other by file
    is_alone = len(file.parts) == 2 and file.parts[0] != "jobs" and file.name != "__init__.py"
    return (file if is_alone else file.parent).as_posix()


def floors(found: dict[str, set[str]]) -> dict[str, int]:
    """The floor of each folder, from 0. Raises ``graphlib.CycleError`` where folders import each other."""
    floor: dict[str, int] = {}
    for folder in TopologicalSorter(found).static_order():
        floor[folder] = 1 + max((floor[each] for each in found[folder]), default=-1)
    return floor


def picture(root: Path = ROOT) -> str:
    """The folders as text, the highest floor first."""
    found = folders(root)
    floor = floors(found)
    arrows = sum(map(len, found.values()))
    lines = [f"{len(found)} folders, {arrows} arrows, all of them down:", ""]
    for number in sorted(set(floor.values()), reverse=True):
        names = sorted((each for each, of in floor.items() if of == number), key=lambda each: each.split("/"))
        line = f"{number:2} "
        for name in names:
            if len(line) + len(name) > WIDTH:
                lines.append(line)
                line = "   "
            line += f" {name}"
        lines.append(line)
    uses = Counter(each for needed in found.values() for each in needed)
    first = sorted(uses.items(), key=lambda each: (-each[1], each[0]))[:3]  # of equal counts always the same
    most = ", ".join(f"{name} by {count}" for name, count in first)
    return "\n".join(["", "```text", *lines, "```", "", f"Imported by most folders: {most}.", "", ""])


def with_picture(text: str) -> str:
    """The page's text with the folders as they are now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{picture()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_picture(PAGE.read_text("utf-8")), "utf-8")
