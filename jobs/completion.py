"""``telemetry-lake completion``: a script by which a shell completes commands, flags and their values.

shtab writes it from the parsers that `CliApp` makes of the settings. All words are in it: Tab starts no Python.
"""

from __future__ import annotations

import sys
from argparse import Action, ArgumentParser
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import shtab
from pydantic_settings import CliSettingsSource

from kafka_telemetry_lake.jobs.cli import COMMANDS, run_command, settings_of
from kafka_telemetry_lake.jobs.settings.base import JobSettings, fields_by_flag
from kafka_telemetry_lake.jobs.settings.completion import CompletionSettings


def run_job(settings: CompletionSettings) -> int:
    """Print the script of the shell."""
    print(shtab.complete(parser(), settings.shell))
    return 0


def parser() -> ArgumentParser:
    """All commands with their flags, as they are read one by one."""
    program = ArgumentParser("telemetry-lake")
    program.add_argument("-V", "--version", action="version", help="print the version")
    commands = program.add_subparsers()
    commands.add_parser("help", help="list the flags of a command").add_argument("command", choices=tuple(COMMANDS))
    for name, meaning in COMMANDS.items():
        command = commands.add_parser(name, help=meaning)
        _completed(command.add_argument("--conf", help="a YAML file of settings"), ())
        _add_settings(command, settings_of(name))
    return program


def _add_settings(command: ArgumentParser, settings: type[JobSettings]) -> None:
    fields = {**settings.model_fields, **fields_by_flag(settings)}

    def add(to: ArgumentParser, *names: str, **kwargs: Any) -> Action:
        action = to.add_argument(*names, **kwargs)
        field = fields.get(names[0])  # the help of all commands has none
        if field is not None and action.nargs != 0:
            _completed(action, tuple(_words(field.annotation)))
        return action

    CliSettingsSource(settings, root_parser=command, add_argument_method=add)


def _completed(action: Action, words: tuple[str, ...]) -> None:
    """Let the shell complete a value: one of a few words, else the name of a file."""
    if words:
        action.choices = words
    else:
        action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab's interface


def _words(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from map(str, get_args(annotation))
    else:
        for part in get_args(annotation):
            yield from _words(part)


if __name__ == "__main__":
    sys.exit(run_command("completion"))
