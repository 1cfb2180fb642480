"""Errors whose message is for the person who runs a command."""

from __future__ import annotations


class TelemetryLakeError(Exception):
    """A known error. The message says what is wrong and what to do; a command prints it and ends with `exit_code`."""

    exit_code = 1


class CannotRunError(TelemetryLakeError):
    """The command can't run as asked: wrong settings, a missing program, a cluster or lake that refuses."""

    exit_code = 2


NEW_LAKE = "start a new lake (`telemetry-lake ingest` reads the landing topic again)"
OTHER_LAKE = f"{NEW_LAKE}, or use the build that wrote it"


class OtherFormatError(CannotRunError):
    """Something stored has another format than the one that this build writes and reads. Nothing was changed."""


def check_format(what: str, found: object, own: int | str, advice: str) -> None:
    """Raise ``OtherFormatError`` unless something stored has this build's format.

    Args:
        what: its name, for the error.
        found: its number; None: it has none.
        own: this build's number for it.
        advice: what to do about another one.
    """
    if found != own:
        stored = "no format number" if found is None else f"format {str(found)[:40]}"
        raise OtherFormatError(f"{what} has {stored}, and this build reads format {own} only: {advice}")
