"""The base class of errors whose message is for the person who runs a command."""

from __future__ import annotations


class TelemetryLakeError(Exception):
    """A known error. The message says what is wrong and what to do; a command prints it and ends with `exit_code`."""

    exit_code = 1


class CannotRunError(TelemetryLakeError):
    """The command can't run as asked: wrong settings, a missing program, a cluster or lake that refuses."""

    exit_code = 2
