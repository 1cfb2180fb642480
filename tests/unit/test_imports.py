"""Imports go one way: jobs -> pipelines -> udfs; and nobody holds a session of their own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FORBIDDEN = {"udfs": {"pipelines", "jobs", "pyspark", "deltalake"}, "pipelines": {"jobs"}, "jobs": {"tests"}}


def _imported(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_imports_go_one_way(package: str) -> None:
    wrong = {
        str(file.relative_to(ROOT)): sorted(_imported(file) & FORBIDDEN[package])
        for file in (ROOT / package).rglob("*.py")
        if _imported(file) & FORBIDDEN[package]
    }
    assert wrong == {}
