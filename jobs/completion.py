"""``telemetry-lake completion``: a script by which a shell completes commands, flags and their values.

The script has all words in it: pressing Tab starts no Python.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from kafka_telemetry_lake.jobs.commands import COMMANDS, settings_of
from kafka_telemetry_lake.jobs.completion_settings import CompletionSettings
from kafka_telemetry_lake.jobs.entry import run_command
from kafka_telemetry_lake.jobs.settings import POSITIONAL, fields_by_flag, flags_of

# Where a value is not one of a few words, the shell completes names of files.
_BASH = """\
_telemetry_lake() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words=
  case $COMP_CWORD:${{COMP_WORDS[1]}}:${{COMP_WORDS[COMP_CWORD-1]}} in
    1:*) words="{commands} help --help --version" ;;
    2:help:*) words="{commands}" ;;
{values}
    *) [[ $current == -* ]] && case ${{COMP_WORDS[1]}} in
{flags}
      esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _telemetry_lake telemetry-lake
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def run_job(settings: CompletionSettings) -> int:
    """Print the script of the shell."""
    print({"bash": bash, "zsh": lambda: _ZSH + bash(), "fish": fish}[settings.shell](), end="")
    return 0


def bash() -> str:
    """The script for bash, and for zsh's emulation of its completion."""
    values = []
    flags = []
    for command in COMMANDS:
        settings = settings_of(command)
        flags.append(f'        {command}) words="{" ".join(flags_of(settings))}" ;;')
        for flag, words in _choices(command):
            place = f"*:{command}:{flag}" if flag else f"2:{command}:*"
            values.append(f'    {place}) words="{" ".join(words)}" ;;')
    return _BASH.format(commands=" ".join(COMMANDS), values="\n".join(values), flags="\n".join(flags))


def fish() -> str:
    """The script for fish, which shows also what each word means."""
    lines = [_fish("__fish_use_subcommand", f"-f -a {name}", meaning) for name, meaning in COMMANDS.items()]
    for command in COMMANDS:
        here = f"__fish_seen_subcommand_from {command}"
        fields = fields_by_flag(settings_of(command))
        choices = dict(_choices(command))
        if "" in choices:
            lines.append(_fish(here, f"-f -a '{' '.join(choices[''])}'", ""))
        lines.append(_fish(here, "-l conf -r", "a YAML file of settings"))
        for flag, field in fields.items():
            value = "" if field.annotation is bool else " -r"
            if flag in choices:
                value = f" -x -a '{' '.join(choices[flag])}'"
            lines.append(_fish(here, f"-l {flag.removeprefix('--')}{value}", field.description or ""))
    return "\n".join(lines) + "\n"


def _fish(condition: str, what: str, meaning: str) -> str:
    said = meaning.splitlines()[0].partition(";")[0].replace("\\", "\\\\").replace("'", "\\'") if meaning else ""
    return f"complete -c telemetry-lake -n '{condition}' {what}" + (f" -d '{said}'" if said else "")


def _choices(command: str) -> Iterator[tuple[str, list[str]]]:
    """The flags that take one of a few words, and these words; for the positional argument the flag is empty."""
    settings = settings_of(command)
    positional = [("", field) for field in settings.model_fields.values() if POSITIONAL in field.metadata]
    for flag, field in [*positional, *fields_by_flag(settings).items()]:
        if words := list(_words(field.annotation)):
            yield flag, words


def _words(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
    else:
        for part in get_args(annotation):
            yield from _words(part)


if __name__ == "__main__":
    sys.exit(run_command("completion"))
