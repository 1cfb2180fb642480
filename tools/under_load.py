"""Runs a command several times beside processes that only compute, and says which runs failed.

    python -m tools.under_load --load 8 --times 20 -- make test

Exit code: 0 if all runs ended with 0, else 1.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# It ends with the process that started it, however that ends.
COMPUTES = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(100_000))"
# Of pytest's and of Maven's summaries.
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)|^\[ERROR\] +(\w+\.\w+):\d+", re.MULTILINE)


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes compute while the block runs."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(processes):
            started.append(subprocess.Popen([sys.executable, "-S", "-c", COMPUTES, str(os.getpid())]))
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def failed_tests(output: str) -> list[str]:
    """Names of failed tests in the output of a run, in its order."""
    return list(dict.fromkeys(test or java for test, java in FAILED.findall(output)))


def main(argv: Sequence[str] | None = None) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.under_load", description=__doc__)
    parser.add_argument("--load", type=int, default=8, help="processes that compute meanwhile")
    parser.add_argument("--times", type=int, default=1, help="runs of the command")
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args(argv)
    failed, tests = 0, Counter[str]()
    with load(asked.load):
        for run in range(1, asked.times + 1):
            began = time.monotonic()
            done = subprocess.run(
                asked.command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
            names = failed_tests(done.stdout)
            failed += done.returncode != 0
            tests.update(names)
            took = f"{time.monotonic() - began:.0f} s"
            print(f"run {run}: exit code {done.returncode}, {took}, failed: {', '.join(names) or 'none'}", flush=True)
            if done.returncode:
                print("\n".join(done.stdout.splitlines()[-40:]), flush=True)
    print(f"{failed} of {asked.times} runs failed beside {asked.load} processes")
    for name, times in tests.most_common():
        print(f"{times} times {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the command that runs is killed then, too
    sys.exit(main())
