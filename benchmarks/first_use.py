"""How long a newcomer waits: `make install` in a fresh clone, and `make demo` until it prints the first client's row.

``python -m benchmarks.first_use`` clones the last commit of this checkout into a scratch folder. Caches are warm:
pip's, Maven's, Go's, and the folder of jars, which is this checkout's. `first_row_s` includes the build of the
receiver's jar.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.figures import print_figures
from kafka_telemetry_lake.pipelines.runtime.jars import jars_home

ROOT = Path(__file__).parents[1]
FIRST_ROW = re.compile(rb"lake: \S+ \(.+\) is in the lake: ")
END_S = 60


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="telemetry-lake-first-use-") as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        # An activated environment, or this checkout on the path, would be used instead of the clone.
        environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        environment["TELEMETRY_LAKE_JARS"] = str(jars_home().resolve())
        began = time.monotonic()
        subprocess.run(["make", "install"], cwd=clone, env=environment, check=True, stdout=subprocess.DEVNULL)
        print_figures({"install_s": time.monotonic() - began})
        print_figures({"first_row_s": first_row_s(clone, environment)})


def first_row_s(clone: Path, environment: dict[str, str]) -> float:
    """Seconds from the start of `make demo` to its first row of a client; then the demo is stopped."""
    began, seen = time.monotonic(), b""
    command = ["make", "demo"]
    demo = subprocess.Popen(
        command, cwd=clone, env=environment | {"PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert demo.stdout is not None
        for line in demo.stdout:
            seen += line
            if FIRST_ROW.search(line):
                return time.monotonic() - began
    finally:
        if demo.poll() is None:
            os.killpg(demo.pid, signal.SIGINT)
            demo.wait(END_S)
    raise SystemExit(f"the demo printed no client:\n{seen.decode()[-2000:]}")


if __name__ == "__main__":
    main()
