"""Where figures are kept: `results.json` (flat, the latest of each), and `runs/` (what they were made of)."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
LIBRARIES = ("pyspark", "deltalake", "pyarrow", "numpy", "numba")


def tell(figures: Mapping[str, float]) -> None:
    """Print each figure as `name: value`, and keep it."""
    for name, value in figures.items():
        print(f"{name}: {value:.4g}" if abs(value) < 1000 else f"{name}: {value:.0f}", flush=True)
    keep(figures)


def keep(figures: Mapping[str, float]) -> None:
    """Put the figures into results.json, to four digits."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    kept |= {name: float(f"{value:.4g}") for name, value in figures.items()}
    RESULTS.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def keep_runs(name: str, runs: Mapping[str, Any]) -> None:
    """Put the raw runs of a benchmark into runs/<name>.json, with the commit and the versions."""
    told = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=HERE)
    about = {
        "commit": told.stdout.strip(),
        "python": platform.python_version(),
        **{library: version(library) for library in LIBRARIES},
    }
    folder = HERE / "runs"
    folder.mkdir(exist_ok=True)
    content = json.dumps({"versions": about, **runs}, indent=2, sort_keys=True)
    (folder / f"{name}.json").write_text(content + "\n", encoding="utf-8")
