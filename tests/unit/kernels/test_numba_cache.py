"""Where compiled kernels are cached: private, the same for all workers, and usable by workers that start at once."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_telemetry_lake.udfs.kernels import machine_code, numba_cache
from kafka_telemetry_lake.udfs.sources import digest
from tests.support.patience import PATIENCE_S


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home directory; what the test configures is forgotten."""
    monkeypatch.setattr(numba_cache, "user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # The process's own configuration must survive the test.
    monkeypatch.setitem(sys.modules, "numba", type(sys)("numba"))
    monkeypatch.setattr(sys.modules["numba"], "config", type(sys)("config"), raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    numba_cache.configure.cache_clear()
    yield tmp_path
    numba_cache.configure.cache_clear()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_first_choice_is_a_private_directory_of_the_user(home: Path) -> None:
    directory = numba_cache.configure()
    assert directory.parent == home / "cache" / "kafka-telemetry-lake"
    assert mode(directory) == 0o700
    assert os.environ["NUMBA_CACHE_DIR"] == str(directory)
    assert str(directory) == sys.modules["numba"].config.CACHE_DIR
    assert numba_cache.configure() == directory


def test_a_child_process_shares_its_parents_directory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(home / "given"))
    directory = numba_cache.configure()
    assert directory.parent == home / "given"
    numba_cache.configure.cache_clear()  # the child, with the parent's environment
    assert numba_cache.configure() == directory


@pytest.mark.parametrize("flaw", ["open to others", "a link", "a file", "of another user"])
def test_a_directory_that_others_may_write_is_passed_over(
    home: Path, flaw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = numba_cache.configure()
    numba_cache.configure.cache_clear()
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    if flaw == "open to others":
        first.chmod(0o770)
    elif flaw == "of another user":
        uid = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    else:
        first.rmdir()
        if flaw == "a link":
            (home / "elsewhere").mkdir(mode=0o700)
            first.symlink_to(home / "elsewhere")
        else:
            first.touch()
    second = numba_cache.configure()
    assert second.parent == home
    assert second != first
    assert mode(second) == 0o700


def test_a_temp_directory_serves_where_the_user_has_none(home: Path) -> None:
    (home / "cache").touch()  # so that nothing can be made below it
    directory = numba_cache.configure()
    assert directory.parent == home
    assert directory.name.startswith(f"kafka-telemetry-lake-{os.getuid()}-numba-")
    assert mode(directory) == 0o700


def test_changed_sources_get_a_directory_of_their_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = numba_cache.configure()
    numba_cache.configure.cache_clear()
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    package = home / "udfs"
    shutil.copytree(Path(numba_cache.__file__).parents[1], package)
    monkeypatch.setattr(numba_cache, "__file__", str(package / "kernels" / "numba_cache.py"))
    assert numba_cache.configure() == first
    for changed in sorted(package.rglob("*.py")):  # compiled code calls across the packages
        numba_cache.configure.cache_clear()
        digest.cache_clear()
        before = changed.read_text()
        changed.write_text(before + "# changed\n")
        assert numba_cache.configure() != first, changed
        changed.write_text(before)


def test_the_lock_can_be_taken_again_by_its_holder(home: Path) -> None:
    with numba_cache.exclusive(), numba_cache.exclusive():
        pass


def test_a_child_fills_the_cache_once(home: Path) -> None:
    calls = home / "calls"

    def compile_all() -> None:
        with calls.open("a") as file:
            file.write(f"{os.getpid()}\n")

    numba_cache.fill(compile_all)
    numba_cache.fill(compile_all)
    [process] = calls.read_text().split()
    assert process != str(os.getpid())


def test_who_comes_while_another_fills_the_cache_waits_for_it(home: Path) -> None:
    forks, calls = multiprocessing.get_context("fork"), home / "calls"
    begun, go = forks.Event(), forks.Event()

    def compile_all() -> None:
        with calls.open("a") as file:
            file.write("compiled\n")
        begun.set()
        assert go.wait(PATIENCE_S)

    first, second = (forks.Process(target=numba_cache.fill, args=(compile_all,)) for _ in range(2))
    first.start()
    assert begun.wait(PATIENCE_S)
    second.start()
    second.join(0.3)
    assert second.is_alive()
    go.set()
    for each in (first, second):
        each.join(PATIENCE_S)
        assert each.exitcode == 0
    assert calls.read_text() == "compiled\n"
    assert numba_cache.is_filled()


def test_children_tell_what_they_have_compiled(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numba")  # the fixture's, without a compiler
    numba = importlib.import_module("numba")
    told: list[int] = []

    def compile_one() -> None:
        numba.njit(lambda number: 2 * number)(21)

    numba_cache.fill(compile_one, compile_one, progress=told.append)
    assert told[-1] == 2
    assert told == sorted(told)
    assert numba_cache.is_filled()


@pytest.mark.parametrize("way", ["killed", "raised"])
def test_a_child_that_fails_fills_nothing(home: Path, way: str, capfd: pytest.CaptureFixture[str]) -> None:
    def compile_all() -> None:
        if way == "killed":
            os._exit(3)
        raise ValueError("of numba\nin many lines")

    numba_cache.fill(compile_all)
    assert not numba_cache.is_filled()
    assert not list(numba_cache.configure().glob(f"{numba_cache.FILLED}*"))
    assert capfd.readouterr().err == ("compiling kernels: ValueError: of numba\n" if way == "raised" else "")


@pytest.mark.parametrize("other", ["numba", "processor"])
def test_what_was_filled_for_another_is_not_filled(home: Path, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds of machines may share a home, and an installation may get another numba."""
    numba_cache.fill(lambda: None)
    assert numba_cache.is_filled()
    monkeypatch.setattr(machine_code, "compiler" if other == "numba" else "processor", lambda: "another")
    assert not numba_cache.is_filled()
    numba_cache.fill(lambda: None)
    assert numba_cache.is_filled()
