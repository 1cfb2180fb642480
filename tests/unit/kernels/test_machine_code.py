"""Machine code that a wheel brings: used where it fits and is whole, else the kernels are compiled."""

from __future__ import annotations

import base64
import errno
import hashlib
import importlib.util
import os
import platform
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numba
import pytest

from kafka_telemetry_lake.udfs.kernels import machine_code, numba_cache
from kafka_telemetry_lake.udfs.kernels.compiled import COMPILES
from kafka_telemetry_lake.udfs.sources import digest
from tests.support.patience import PATIENCE_S
from tools.machine_code import add

pytestmark = pytest.mark.lake  # it starts processes that compile

MODULE = "kafka_telemetry_lake.udfs.small.twice"
# A package with one small kernel, and the modules that compile and load it as they are.
SMALL = {
    "udfs/small/__init__.py": "",
    "udfs/small/twice.py": """
from kafka_telemetry_lake.udfs.kernels.compiled import kernel
@kernel
def twice(number): return 2 * number
""",
    "pipelines/ingest/compiling.py": """
from kafka_telemetry_lake.udfs.kernels import numba_cache
from kafka_telemetry_lake.udfs.small.twice import twice
def load_kernels():
    with numba_cache.exclusive(): assert twice(21) == 42
def compile_kernels(): numba_cache.fill(load_kernels)
""",
    **{
        f"udfs/{path.relative_to(machine_code.UDFS)}": path.read_text("utf-8")
        for path in [machine_code.UDFS / "sources.py", *(machine_code.UDFS / "kernels").glob("*.py")]
    },
    **{f"{folder}__init__.py": "" for folder in ("", "udfs/", "pipelines/", "pipelines/ingest/")},
}


def small_wheel(folder: Path) -> Path:
    wheel = folder / "kafka_telemetry_lake-0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for name, text in SMALL.items():
            packed.writestr(zipfile.ZipInfo(f"kafka_telemetry_lake/{name}"), text)
        packed.writestr(
            zipfile.ZipInfo("kafka_telemetry_lake-0.dist-info/RECORD"), "kafka_telemetry_lake-0.dist-info/RECORD,,\n"
        )
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not COMPILES or platform.machine() not in machine_code.BASELINES:
        pytest.skip("no machine code is made for this architecture")
    wheel = small_wheel(tmp_path_factory.mktemp("wheel"))
    add(wheel)
    return wheel


@pytest.fixture
def udfs(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `udfs` of the installed wheel, on a node with an empty cache."""
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "site")
    folder = tmp_path / "site" / "kafka_telemetry_lake" / "udfs"
    monkeypatch.setattr(machine_code, "UDFS", folder)
    machine_code.shipped.cache_clear()
    monkeypatch.setattr(numba_cache, "unsaved", [])
    # numba reads its variables again when one has changed.
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    for wish in machine_code.WISHES:
        monkeypatch.delenv(wish, raising=False)
    return folder


def loaded(udfs: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kernel in a process that has just imported it."""
    machine_code.shipped.cache_clear()
    spec = importlib.util.spec_from_file_location(MODULE, udfs / "small" / "twice.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, MODULE, module)
    spec.loader.exec_module(module)
    machine_code.shipped.cache_clear()  # of the tests that follow
    return module.twice


def hits_and_misses(kernel: Any) -> tuple[int, int]:
    return sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values())


def test_a_new_node_loads_it_and_compiles_nothing(udfs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twice = loaded(udfs, monkeypatch)
    assert twice(21) == 42
    assert hits_and_misses(twice) == (1, 0)
    assert not list((tmp_path / "cache").rglob("*.nb*"))
    assert numba_cache.is_filled()


def test_what_it_lacks_is_compiled_into_the_users_cache(udfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded(udfs, monkeypatch)(2.5) == 5
    again = loaded(udfs, monkeypatch)
    assert (again(1.5), again(21)) == (3, 42)
    assert hits_and_misses(again) == (2, 0)


def code_of(udfs: Path) -> list[Path]:
    return sorted((udfs / machine_code.FOLDER).rglob("*.nb?"))


def change_a_bit(udfs: Path) -> None:
    for path in code_of(udfs):
        path.write_bytes(path.read_bytes()[:-1] + b"!")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a byte of a file": change_a_bit,
    "half of a file": lambda udfs: code_of(udfs)[0].write_bytes(code_of(udfs)[0].read_bytes()[:100]),
    "a file is missing": lambda udfs: code_of(udfs)[0].unlink(),
    "no checksums": lambda udfs: next(udfs.rglob(machine_code.CHECKSUMS)).unlink(),
    "empty checksums": lambda udfs: next(udfs.rglob(machine_code.CHECKSUMS)).write_text(""),
    "no list of checksums": lambda udfs: next(udfs.rglob(machine_code.CHECKSUMS)).write_text("of nothing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_code_is_not_used(udfs: Path, damage: str) -> None:
    assert machine_code.shipped()
    machine_code.shipped.cache_clear()
    DAMAGES[damage](udfs)
    assert machine_code.shipped() is None


def test_without_fitting_code_a_kernel_is_compiled(udfs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_a_bit(udfs)
    twice = loaded(udfs, monkeypatch)
    assert twice(21) == 42
    assert hits_and_misses(twice) == (0, 1)
    assert len(list((tmp_path / "cache").rglob("*.nbc"))) == 1


@pytest.mark.parametrize("other", ["sources", "numba", "llvmlite", "Python", "architecture", "older processor", "wish"])
def test_code_of_another_kind_is_not_looked_at(udfs: Path, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine_code.shipped()
    machine_code.shipped.cache_clear()
    if other == "sources":
        digest.cache_clear()
        (udfs / "small" / "twice.py").write_text("# changed")
    elif other in ("numba", "llvmlite"):
        monkeypatch.setattr(machine_code, "_version", lambda package: "9" if package == other else version(package))
    elif other == "Python":
        monkeypatch.setattr(sysconfig, "get_config_var", lambda _: "cpython-399-x86_64-linux-gnu")
    elif other == "architecture":
        monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    elif other == "older processor":
        monkeypatch.setattr(platform, "machine", lambda: "x86_64")
        monkeypatch.setattr(machine_code, "_host", lambda: ("ivybridge", {"avx": True, "avx2": False}))
    else:
        monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert machine_code.shipped() is None


def test_the_wheel_lists_what_was_added(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        *lines, itself = packed.read("kafka_telemetry_lake-0.dist-info/RECORD").decode().splitlines()
        assert itself == "kafka_telemetry_lake-0.dist-info/RECORD,,"
        assert len(lines) == 3  # index, code, checksums
        for name, checksum, size in (line.split(",") for line in lines):
            content = packed.read(name)
            value = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            assert (checksum, size) == (f"sha256={value}", str(len(content)))


@pytest.mark.slow
def test_two_builds_are_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a folder of another name"
    folder.mkdir()
    again = small_wheel(folder)
    add(again)
    assert again.read_bytes() == wheel.read_bytes()
    assert add(again) == []  # it has code for this Python
    assert again.read_bytes() == wheel.read_bytes()


@pytest.mark.slow
def test_processes_that_start_at_once_without_a_home(udfs: Path, tmp_path: Path) -> None:
    """Nothing is written where the code is read, so there is nothing that they could disturb."""
    program = (
        "from kafka_telemetry_lake.pipelines.ingest.compiling import load_kernels, twice\n"
        "load_kernels(); print(sum(twice.stats.cache_hits.values()), sum(twice.stats.cache_misses.values()))"
    )
    environment = {key: value for key, value in os.environ.items() if key not in ("HOME", "XDG_CACHE_HOME")}
    environment |= {"PYTHONPATH": str(udfs.parents[1]), "NUMBA_CACHE_DIR": "/proc/none", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-P", "-c", program]
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=PATIENCE_S)[0].split() for process in processes] == [["1", "0"]] * 2


def own_files(udfs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Those of the user's cache, once the kernel is in it."""
    change_a_bit(udfs)
    loaded(udfs, monkeypatch)(21)
    return sorted((tmp_path / "cache").rglob("*.nb?"))


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_half_a_file_in_the_users_cache_is_compiled_again(
    udfs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Left by a machine that went down: numba doesn't wait for the disk. By itself it raises, in each process."""
    (damaged,) = (path for path in own_files(udfs, tmp_path, monkeypatch) if path.suffix == suffix)
    damaged.write_bytes(damaged.read_bytes()[:20])
    twice = loaded(udfs, monkeypatch)
    assert twice(21) == 42
    assert hits_and_misses(twice) == (0, 1)
    again = loaded(udfs, monkeypatch)
    assert again(21) == 42
    assert hits_and_misses(again) == (1, 0)


def test_a_full_disk_costs_the_cache_not_the_call(
    udfs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile._save_data", full)
    change_a_bit(udfs)
    twice = loaded(udfs, monkeypatch)
    monkeypatch.setattr(numba_cache, "configure", lambda: tmp_path)
    numba_cache.fill(lambda: twice(21))
    assert capfd.readouterr().err == "compiling kernels: not kept: [Errno 28] No space left on device\n"
    assert not numba_cache.is_filled()
    assert twice(21) == 42
