"""The files of a lake outside Delta's tables, against the list of docs/storage.md."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "storage.md"


def listed() -> list[str]:
    """The paths in the first column of the page's table, as patterns; one that ends with a slash is a folder."""
    rows = PAGE.read_text("utf-8").partition("## Files of a lake outside Delta")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in rows.splitlines() if line.startswith("| `")]
    return [re.sub("<[a-z]+>", "*", name) for cell in cells for name in re.findall("`([^`]+)`", cell)]


def undescribed(lake: Path) -> list[str]:
    """The files below a lake that neither belong to a Delta table nor are on the list."""
    patterns = [f"{name}*" if name.endswith("/") else name for name in listed()]
    tables = {log.parent.name for log in lake.glob("*/_delta_log")}
    paths = (file.relative_to(lake).as_posix() for file in lake.rglob("*") if file.is_file())
    return sorted(
        path
        for path in paths
        if not (_is_of_table(path, tables) or any(fnmatchcase(path, pattern) for pattern in patterns))
    )


def _is_of_table(path: str, tables: set[str]) -> bool:
    name, _, rest = path.partition("/")
    return name in tables and (rest.startswith("_delta_log/") or bool(re.fullmatch(r"[^_].*\.parquet", rest)))
