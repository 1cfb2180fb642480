"""Completion of the command line, as each shell gives it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.cli import COMMANDS, settings_of
from kafka_telemetry_lake.jobs.settings.base import flags_of
from tests.support.patience import PATIENCE_S

Complete = Callable[[str], set[str]]
BASH = """\
eval "$(cat script)"
[[ $(complete -p telemetry-lake) == *' -F _shtab_telemetry_lake '* ]]
COMP_WORDS=({words}); COMP_CWORD={at}; _shtab_telemetry_lake; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# zsh completes only in its editor, so another zsh types into it: the line, Tab, and a key that says when that is done.
ZSH = """\
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner '. ./setup'
zpty -w -n inner {line}$'\\t\\x18'
while [[ ! -e done ]]; do sleep 0.1; done
zpty -d inner
cat offered
"""
ZSH_SETUP = """\
autoload -U compinit; compinit -u -D
eval "$(cat script)"
touch offered
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]]; then builtin compadd "$@"; return; fi
  local -a hits; builtin compadd -O hits "$@"; print -l -- $hits >> offered
}
ended() { touch done }
zle -N ended; bindkey '^X' ended
"""


@pytest.fixture(params=["bash", "zsh", "fish"])
def complete(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Complete:
    """What a shell offers at the end of a line."""
    shell = str(request.param)
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell}")
    assert cli.main(["completion", shell]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out, "utf-8")
    (tmp_path / "setup").write_text(ZSH_SETUP, "utf-8")

    def offered(line: str) -> set[str]:
        words = line.split(" ")
        script = {
            "bash": BASH.format(words=" ".join(map(shlex.quote, words)), at=len(words) - 1),
            "zsh": ZSH.format(line=shlex.quote(line)),
            "fish": f"source ./script; complete -C {shlex.quote(line)}",
        }[shell]
        for left in ("offered", "done"):
            (tmp_path / left).unlink(missing_ok=True)
        done = subprocess.run(
            [found, *(["-f"] if shell == "zsh" else []), "-c", script], cwd=tmp_path, check=False, timeout=PATIENCE_S,
            env={"HOME": str(tmp_path), "PATH": f"{Path(found).parent}:/usr/bin:/bin"}, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return {each.split("\t")[0] for each in done.stdout.splitlines() if each}

    return offered


def test_commands_flags_and_values(complete: Complete, tmp_path: Path) -> None:
    assert complete("telemetry-lake qu") == {"query", "quality"}
    assert complete("telemetry-lake ") >= set(COMMANDS)
    assert complete("telemetry-lake help noti") == {"notify"}
    assert complete("telemetry-lake query --format ver") == {"vertical"}
    assert complete("telemetry-lake query --no-allow") == {"--no-allow-files"}
    assert complete("telemetry-lake completion ") >= {"bash", "zsh", "fish"}
    assert complete("telemetry-lake ingest --lake x --personal-data ") >= {"hash", "drop"}


def test_other_values_are_names_of_files(complete: Complete, tmp_path: Path) -> None:
    (tmp_path / "own-lake").mkdir()
    for line in ("maintain --lake ow", "query --conf ow", "check-landing ow"):
        assert {name.rstrip("/") for name in complete(f"telemetry-lake {line}")} == {"own-lake"}


def test_every_flag_is_in_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    for command in COMMANDS:
        words = re.search(rf"^_shtab_telemetry_lake_{command.replace('-', '_')}_option_strings=\((.*)\)$", script, re.M)
        assert words is not None
        assert set(words[1].split()) == {"-h", *flags_of(settings_of(command))}
