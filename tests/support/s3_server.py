"""Real S3 servers on this machine, for tests, each built once from its Go module: VersityGW over a folder, gofakes3."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from kafka_telemetry_lake.pipelines.runtime.jars import jars_home
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

BUCKET = "lakes"
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
GOFAKES3 = "github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0"


@dataclass(frozen=True)
class S3Server:
    """A running server.

    Attributes:
        environment: what a process needs to find it and be let in.
        folder: where VersityGW's objects lie, a folder a bucket; gofakes3 has them in memory and lets everyone in.
    """

    environment: dict[str, str]
    folder: Path
    process: subprocess.Popen[bytes]

    @staticmethod
    def start(folder: Path, module: str = VERSITYGW) -> S3Server:
        """Start one over a folder; skips the test where it can't be had."""
        (folder / BUCKET).mkdir(parents=True)
        address = f"127.0.0.1:{free_port()}"
        if module == VERSITYGW:
            command = [
                binary(module),
                "--access",
                "test",
                "--secret",
                "test-secret",
                "--port",
                address,
                "posix",
                folder,
            ]
        else:
            command = [binary(module), "-backend", "memory", "-host", address, "-initialbucket", BUCKET]
        log = (folder.parent / "s3.log").open("wb")
        server = S3Server(
            {
                "AWS_ENDPOINT_URL": f"http://{address}",
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test-secret",
                # gofakes3 doesn't know the checksums that AWS' SDKs add since 2025, and stores them within the object.
                **({} if module == VERSITYGW else {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required"}),
            },
            folder,
            subprocess.Popen([str(part) for part in command], stdout=log, stderr=subprocess.STDOUT),
        )
        host, _, port = address.partition(":")
        deadline = time.monotonic() + PATIENCE_S
        while server.process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    return server
            time.sleep(0.1)
        server.stop()
        raise AssertionError((folder.parent / "s3.log").read_text())

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def binary(module: str) -> Path:
    """The server's program, built at its first use."""
    if shutil.which("go") is None:
        pytest.skip("an S3 server is built from its Go module: Go is not installed")
    name = module.partition("@")[0].rpartition("/")[2]
    folder = jars_home() / name
    program = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        if not program.exists():
            environment = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"}
            built = subprocess.run(
                ["go", "install", module], env=environment, capture_output=True, text=True, check=False
            )
            if built.returncode:
                pytest.skip(f"{module} can't be built: {' '.join(built.stderr.split())[-300:]}")
    return program
