"""Completion of the command line, as each shell gives it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.commands import COMMANDS, settings_of
from kafka_telemetry_lake.jobs.settings import flags_of
from tests.support.patience import PATIENCE_S

Complete = Callable[[str], set[str]]
BASH = "COMP_WORDS=({words}); COMP_CWORD={at}; _telemetry_lake; printf '%s\\n' \"${{COMPREPLY[@]}}\""


@pytest.fixture(params=["bash", "zsh", "fish"])
def complete(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Complete:
    """What a shell offers at the end of a line."""
    shell = str(request.param)
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    assert cli.main(["completion", shell]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out, "utf-8")

    def offered(line: str) -> set[str]:
        words = line.split(" ")
        asked = BASH.format(words=" ".join(map(shlex.quote, words)), at=len(words) - 1)
        script = {
            "bash": f". ./script; {asked}",
            "zsh": f"autoload -U compinit; compinit -u -D; . ./script; emulate sh; {asked}",
            "fish": f"source ./script; complete -C {shlex.quote(line)}",
        }[shell]
        done = subprocess.run(
            [shell, *(["-f"] if shell == "zsh" else []), "-c", script], cwd=tmp_path, check=False, timeout=PATIENCE_S,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        found = {each.split("\t")[0] for each in done.stdout.splitlines() if each}
        # Outside its editor zsh leaves it to the caller to choose by what is typed.
        return {each for each in found if each.startswith(words[-1])} if shell == "zsh" else found

    return offered


def test_commands_flags_and_values(complete: Complete) -> None:
    assert complete("telemetry-lake qu") == {"query", "quality"}
    assert complete("telemetry-lake ") >= set(COMMANDS)
    assert complete("telemetry-lake query --format ver") == {"vertical"}
    assert complete("telemetry-lake query --no-allow") == {"--no-allow-files"}
    assert complete("telemetry-lake completion ") >= {"bash", "zsh", "fish"}
    assert complete("telemetry-lake ingest --lake x --personal-data ") >= {"hash", "drop"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_is_in_the_script(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "bash"]) == 0
    assert f'{command}) words="{" ".join(flags_of(settings_of(command)))}" ;;' in capsys.readouterr().out
