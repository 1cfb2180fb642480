"""Errors in a lake or its checkpoints. Each message says what to do."""

from kafka_telemetry_lake.udfs.errors import CannotRunError


class StateError(CannotRunError):
    """Stored state doesn't match the tables or the settings of this run."""


class ShardCountError(StateError):
    """The run asks for a different number of shards from the one the state is stored in."""


class StateMissingError(StateError):
    """State that the next step needs is missing: a batch's state files, or the lifecycle's note in its table folder."""


class RebuildError(StateError):
    """A new checkpoint can't rebuild the state: some pushes whose points are stored have been deleted."""


class ForeignCheckpointError(StateError):
    """The checkpoints belong to another lake."""


class OldCheckpointError(StateError):
    """The checkpoints are older than the lake."""


class OldLakeError(StateError):
    """The tables are older than the checkpoints."""


class LogGapError(StateError):
    """The next commits to read are no longer in a table's log."""


class DamagedLogError(StateError):
    """A commit in a table's log can't be read."""


class WriterRunsError(CannotRunError):
    """Another process writes the lake in this role; the message describes it."""


class FencedError(CannotRunError):
    """Another process has taken over the lake: nothing that this one writes counts any more."""


class DamagedLeaseError(CannotRunError):
    """The leases of a lake's writers can't be used; the message says what to do."""


class UnfitStoreError(CannotRunError):
    """The store of a lake lacks what its writers need; the message says what, and what to do."""


class CatalogError(CannotRunError):
    """A catalog of Spark doesn't have, or refuses, what a lake of tables by name needs; the message says what."""


class OtherTableError(CannotRunError):
    """A table of a lake's name is another one."""
