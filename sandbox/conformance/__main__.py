"""The card of a client library, for its authors: ``make conformance CLIENT='my-client {bootstrap}'``."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from kafka_telemetry_lake.sandbox.conformance.card import as_json, as_table, as_text, make_card, read_card
from kafka_telemetry_lake.sandbox.conformance.lives import LIVES
from kafka_telemetry_lake.udfs.errors import CannotRunError, TelemetryLakeError


def main(arguments: list[str] | None = None) -> int:
    """Prints a card; its exit code is 0 if it could be made, whatever is in it."""
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("client", nargs="+", help="a command with {bootstrap} in it, or a client of the sandbox")
    parser.add_argument("--json", type=Path, help="write the card to this file, too")
    parser.add_argument("--life", action="append", choices=LIVES, help="only this start of the client; may be repeated")
    parser.add_argument("--at-once", type=int, default=3, help="starts of the client at the same time")
    parser.add_argument("--table", action="store_true", help="print a table of cards; the arguments are their files")
    given = parser.parse_args(arguments)
    try:
        if given.table:
            print(as_table([read_card(Path(file)) for file in given.client]), end="")
            return 0
        _check(given.at_once, given.json)
        client = given.client[0] if len(given.client) == 1 else shlex.join(given.client)
        card = make_card(client, given.life or tuple(LIVES), given.at_once)
        print(as_text(card))
        if given.json is not None:
            _write(given.json, as_json(card))
    except TelemetryLakeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _check(at_once: int, file: Path | None) -> None:
    """Before the work of a card, not after it."""
    if at_once < 1:
        raise CannotRunError("--at-once must be 1 or more")
    if file is not None and not file.parent.is_dir():
        raise CannotRunError(f"--json: {file.parent} is no folder")
    if file is not None and file.is_dir():
        raise CannotRunError(f"--json: {file} is a folder")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CannotRunError(f"--json: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
