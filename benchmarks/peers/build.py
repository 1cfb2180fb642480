"""Builds the peers' programs from the sources beside this file; Go and Cargo download what they need."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers import PeerError

BUILT = Path(__file__).parent.parent / ".build"


def built(sources: Path, patterns: Sequence[str], command: Sequence[str], output: Path) -> Path:
    """The program that `command` writes to `output`, rebuilt if one of the sources changes. Raises `PeerError`."""
    digest = hashlib.sha256()
    for source in sorted(file for pattern in patterns for file in sources.glob(pattern)):
        digest.update(source.read_bytes())
    program = BUILT / f"{sources.name}-{digest.hexdigest()[:12]}"
    if program.exists():
        return program
    if shutil.which(command[0]) is None:
        raise PeerError(f"no `{command[0]}` on the PATH: {sources.name} is built from source")
    BUILT.mkdir(exist_ok=True)
    try:
        subprocess.run(command, cwd=sources, check=True)
    except subprocess.CalledProcessError as error:
        raise PeerError(f"{sources.name} could not be built: {error}") from None
    unfinished = program.with_name(f"{program.name}.{os.getpid()}")
    shutil.copy(output, unfinished)
    return unfinished.rename(program)
