"""The faults that `make mutants` puts back are still there to be put back, and a mutant is judged by what failed."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tools import mutants
from tools.mutants import Mutant

ROOT = Path(__file__).parents[3]
TESTS = """
def test_sum():
    from added import added
    assert added(2, 2) == 4

def test_other():
    from added import added
    assert added(2, 0) == 2
"""


@pytest.mark.parametrize("mutant", mutants.mutants(), ids=lambda mutant: mutant.name)
def test_its_text_occurs_once_and_its_tests_are_there(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text("utf-8").count(mutant.text) == 1
    assert mutant.becomes != mutant.text
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text("utf-8")


def test_no_fault_is_put_back_twice() -> None:
    faults = Counter((each.file, each.text, each.becomes) for each in mutants.mutants())
    assert [fault for fault, count in faults.items() if count > 1] == []
    assert len(faults) >= 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("becomes", "tests", "result"),
    [
        ("a - b", ["test_sum", "test_other"], "survived"),  # each of them has to see it
        ("a * b + nowhere", ["test_sum", "test_other"], "caught"),
        ("a - b", ["test_gone"], "broken"),
        ("a - b", ["test_sum"], "caught"),
        ("a * b", ["test_sum"], "survived"),
        ("a +", ["test_sum"], "caught"),
    ],
)
def test_a_mutant_is_caught_if_all_its_tests_fail(tmp_path: Path, becomes: str, tests: list[str], result: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "added.py").write_text("def added(a, b):\n    return a + b\n")
    (tree / "test_added.py").write_text(TESTS)
    (tree / "pytest.ini").write_text("[pytest]")
    mutant = Mutant("wrong sign", "added.py", "a + b", becomes, tuple(f"test_added.py::{test}" for test in tests))
    assert [(each, said) for each, said, _ in mutants.tried([mutant], [tree])] == [(mutant, result)]
    assert (tree / "added.py").read_text().count("a + b") == 1


@pytest.mark.slow
def test_without_a_mutant_all_tests_have_to_pass(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "test_x.py").write_text("def test_it(): assert False")
    pid = mutants.started(tmp_path, ["test_x.py"], pass_all=True)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == pytest.ExitCode.TESTS_FAILED


def test_a_text_that_is_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    with pytest.raises(ValueError, match=r"gone: its text occurs 2 times in a\.py"):
        Mutant("gone", "a.py", "x = 1", "x = 2", ("test_x.py",)).put_into(tmp_path)


def test_mutants_are_chosen_by_a_part_of_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [Mutant(name, "a.py", "1", "2", ()) for name in ("late-push", "early-push", "limit")]
    monkeypatch.setattr(mutants, "mutants", lambda: every)
    assert [each.name for each in mutants.asked_for(["push"])] == ["late-push", "early-push"]
    assert mutants.asked_for([]) == every
    with pytest.raises(SystemExit, match="there are: late-push, early-push, limit"):
        mutants.asked_for(["none"])
