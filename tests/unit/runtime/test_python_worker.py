"""What a task leaves to the next one in its Python worker, and to the end of the process."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
import zipimport
from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.runtime.python_worker import forget_archives


def test_archives_are_not_read_again_and_still_imported_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = str(tmp_path / "lib.zip")
    with zipfile.ZipFile(lib, "w") as archive:
        archive.writestr("zipped_first.py", "VALUE = 1")
        archive.writestr("zipped_later.py", "VALUE = 2")
    read = list[str]()
    read_directory = zipimport._read_directory  # type: ignore[attr-defined]  # what a finder does to look again

    def noted(path: str) -> object:
        read.append(path)
        return read_directory(path)

    monkeypatch.setattr(zipimport, "_read_directory", noted)
    monkeypatch.syspath_prepend(lib)
    assert importlib.import_module("zipped_first").VALUE == 1
    read.clear()
    importlib.invalidate_caches()
    assert lib in read
    forget_archives()
    read.clear()
    importlib.invalidate_caches()
    assert read == []
    assert importlib.import_module("zipped_later").VALUE == 2
    assert isinstance(sys.path_importer_cache[lib], zipimport.zipimporter)


def test_a_process_that_ran_a_task_ends_without_a_word() -> None:
    code = "import duckdb; from kafka_telemetry_lake.pipelines.runtime.python_worker import after_task; after_task()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("", "")
