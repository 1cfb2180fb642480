"""Where numba can't be loaded, decoding and conversion run as plain Python: the same rows, one warning each."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys, warnings
class Broken:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("numba", "llvmlite"):
            raise ImportError(f"{name} is broken here")
if sys.argv[1] == "without":
    sys.meta_path.insert(0, Broken())
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as said:
    from tests.support.otlp_builder import Shard, counter, delta, gauge, push
    pushes = [push(0, counter(5, 0, 1), gauge(2.5, 1)), push(1, counter(12, 0, 2)), push(2), push(3, payload=b"no")]
    rows = Shard().run(*pushes)
print([(row["metric"], row["series_id"], row["delta_status"], row["delta"]) for row in rows.metric_points.to_pylist()])
print([(row["offset"], row["outcome"]) for row in rows.push_outcomes.to_pylist()])
print([(row["offset"], row["reason"], row["detail"]) for row in rows.quarantine.to_pylist()])
print(sum("slow" in str(warning.message) for warning in said), file=sys.stderr)
"""


def _run(how: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-c", CODE, how], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.strip().splitlines()[-1]


@pytest.mark.slow
def test_the_same_rows_without_numba() -> None:
    compiled, none_said = _run("with")
    plain, warnings = _run("without")
    assert plain == compiled
    assert "'first', 5.0" in plain
    assert "'converted', 7.0" in plain
    assert "INVALID_RECORD" in plain
    assert (none_said, warnings) == ("0", "2")  # the decoder's and the conversion's
