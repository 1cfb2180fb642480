"""The state of our own sources, by which two installations or two runs are told apart."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def digest(folder: Path) -> str:
    """SHA-256 of all Python and YAML files in a folder and below, with their names; 64 hexadecimal digits.

    It is that of the first call: a process goes on with the modules that it has loaded, whatever is installed later.
    """
    sources = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".yml")):
        sources.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return sources.hexdigest()
