"""Clients of librdkafka in other languages, built where their tools are installed: each reads the same settings.

confluent-kafka-go, confluent-kafka-javascript and rust-rdkafka say in three ways which librdkafka they contain. They
are built with Go, with Cargo, CMake and a C++ compiler, or with npm, Node's headers and those of zlib, OpenSSL, zstd
and curl.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
BUILT = HERE.parent / ".build" / "bindings"
# The program that builds each binding, its command, and how the client is started then.
_GO = ["go", "build", "-o", "telemetryclient", "."]
_RUST = ["cargo", "build", "--release", "--locked", "--target-dir", "target"]
# Its package has a binary for download; this builds it from the source beside it, with the system's libraries.
_JS = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--foreground-scripts"]
_JS_SOURCE = {"CKJS_LINKING": "dynamic", "npm_config_build_from_source": "true", "npm_config_nodedir": "/usr"}
_BUILDS: Mapping[str, tuple[list[str], list[str]]] = {
    "go": (_GO, ["./telemetryclient"]),
    "rust": (_RUST, ["target/release/telemetryclient"]),
    "js": (_JS, ["node", "client.js"]),
}
BINDINGS = tuple(_BUILDS)


class BindingUnavailableError(Exception):
    """A binding can't be built; the message says why."""


def binding(name: str) -> list[str]:
    """The command of a client of a binding (`BINDINGS`), built anew if its sources are newer.

    It takes `producer` or `consumer` and a file of settings, of which `driver.topic` and `driver.pause_ms` are its own,
    and prints the events of `sandbox.clients.client.Client`.

    Raises:
        BindingUnavailableError: what builds it isn't installed, or failed.
    """
    command, run = _BUILDS[name]
    if shutil.which(command[0]) is None:
        raise BindingUnavailableError(f"{command[0]} isn't installed")
    source, folder = HERE / name, BUILT / name
    done = folder / ".built"
    changed = max(each.stat().st_mtime for each in source.rglob("*") if each.is_file())
    if not done.exists() or done.stat().st_mtime < changed:
        shutil.copytree(source, folder, dirs_exist_ok=True)
        settings = os.environ | (_JS_SOURCE if name == "js" else {})
        built = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)
        if built.returncode:
            lines = (built.stdout + built.stderr).strip().splitlines() or [f"status {built.returncode}"]
            raise BindingUnavailableError(f"{' '.join(command[:2])} failed: {lines[-1]}")
        done.touch()
    return [run[0] if run[0] == "node" else str(folder / run[0]), *(str(folder / each) for each in run[1:])]
