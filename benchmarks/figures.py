"""Where figures are stored: `results.json` (flat, the latest of each) and `runs/` (the measurements behind them)."""

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


def print_figures(figures: Mapping[str, float]) -> None:
    """Print each figure as `name: value`, and store it."""
    for name, value in figures.items():
        print(f"{name}: {value:.4g}" if abs(value) < 1000 else f"{name}: {value:.0f}", flush=True)
    store_figures(figures)


def store_figures(figures: Mapping[str, float]) -> None:
    """Write the figures to results.json, rounded to four digits; its other figures stay."""
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    stored |= {name: float(f"{value:.4g}") for name, value in figures.items()}
    RESULTS.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def store_runs(name: str, runs: Mapping[str, Any]) -> None:
    """Write the raw runs of a benchmark to runs/<name>.json, with the commit and the versions."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=HERE)
    about = {
        "commit": head.stdout.strip(),
        "python": platform.python_version(),
        **{library: version(library) for library in LIBRARIES},
    }
    folder = HERE / "runs"
    folder.mkdir(exist_ok=True)
    content = json.dumps({"versions": about, **runs}, indent=2, sort_keys=True)
    (folder / f"{name}.json").write_text(content + "\n", encoding="utf-8")
