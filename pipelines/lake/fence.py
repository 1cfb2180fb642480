"""Who may write a lake: numbered leases, of which only the highest counts.

A process that writes takes the lease of the next epoch of its role (`JOB`, for example) by adding a file to the folder
`_writers` of the lake, which only one process can (`log_files.NewFiles`). From then on a process with a lower epoch can
change nothing that counts: a commit fails where the table's log has a commit of a higher epoch (`delta_log`), and
notes of a lower epoch are passed over (`notes`). So nothing depends on clocks, or on who notices what in time.

Whether the process before still runs is a different question, and decides only whether a new one waits: it says so by
writing its `.alive` file every few seconds, and adds a `.released` file when it has ended.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.lake.errors import DamagedLeaseError, FencedError, UnfitStoreError, WriterRunsError
from kafka_telemetry_lake.pipelines.lake.log_files import NewFiles
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.lake.store_races import lost_race
from kafka_telemetry_lake.pipelines.tables.table import table_uri

log = logging.getLogger("telemetry-lake")

FOLDER = "_writers"
JOB = "job"
BEAT_S = 10.0  # between two signs of life
PATIENCE_S = 35.0  # without one, the process has ended, or is cut off
RETAINED = 20  # leases of a role
LAST_EPOCH = 10**12 - 1
SIGN = re.compile(rb"[0-9a-f]{32}")  # of life
APP_ID = "kafka-telemetry-lake:epoch"
"""The application of whose transactions (Delta's ``txn``) a table's latest is the epoch that may write to it."""


@dataclass(frozen=True)
class Lease:
    """What the file of a lease says; an empty or damaged one says nothing, but its epoch counts."""

    command: str = "an unknown command"
    host: str = "an unknown host"
    machine: str = ""  # changes when the machine starts
    process: int = 0
    token: str = ""
    lake: str = ""  # id of its table `pushes`; empty before there is one
    locked: bool = False  # whether it has the machine's lock; one that took over from a process with it has not


class Fence:
    """The lease of this process.

    Attributes:
        epoch: its number.
        took_over: whether the process before may still run, so nothing that it writes to may be used any more.
    """

    def __init__(self, leases: Leases, epoch: int, *, took_over: bool) -> None:
        self.epoch, self.took_over = epoch, took_over
        self._leases = leases
        self._loss: str | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def loss(self) -> str | None:
        """The process that has the lake now, in words; None: this one, as far as it knows."""
        return self._loss

    def lose(self, epoch: int) -> FencedError:
        """Note that a higher epoch was seen."""
        if self._loss is None:
            self._loss = self._leases.describe(epoch)
        return FencedError(f"epoch {self.epoch} has ended: the lake is written by {self._loss}")

    def check(self) -> None:
        """Look for a higher epoch. It saves useless work; what counts is decided by commits.

        Raises:
            FencedError: there is one.
        """
        if (latest := self._leases.latest()) > self.epoch:
            raise self.lose(latest)

    def keep_alive(self, lost: Callable[[], object]) -> None:
        """Give signs of life in a thread until `release`, and look for a higher epoch.

        Args:
            lost: called once, when there is one.
        """
        self._leases.beat(self.epoch)
        self._thread = threading.Thread(target=self._live, args=(lost,), name="fence", daemon=True)
        self._thread.start()

    def release(self, *, clean: bool) -> None:
        """End the signs of life.

        Args:
            clean: nothing of this process writes any more, so the next one needn't wait.
        """
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if clean and self._loss is None:
            self._leases.release(self.epoch)

    def _live(self, lost: Callable[[], object]) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                self.check()
                self._leases.beat(self.epoch)
            except FencedError:
                lost()
                return
            except OSError as error:  # a store that doesn't answer: commits fail too, and say so
                log.debug("fence: %s", error)


class Leases:
    """The leases of one role on a lake.

    Args:
        lake: folder or URI of the lake.
        role: what the process does; two roles don't exclude each other.
    """

    def __init__(self, lake: str, role: str) -> None:
        self._uri, self._role = table_uri(lake, FOLDER), role
        self._new = NewFiles(self._uri)
        self._filesystem, self._root = filesystem_of(self._uri)

    def latest(self) -> int:
        """The highest epoch; 0: none was taken yet."""
        return max(self._epochs(), default=0)

    def acquire(self, own: Lease, at_least: int = 0, *, alone: bool = False, take_over: bool = False) -> Fence:
        """Take the lease of the next epoch.

        Args:
            own: describes this process.
            at_least: an epoch that was taken for sure: tables note it, even if the folder of leases is gone.
            alone: this process has the lock that the operating system gives to one process of this machine.
            take_over: don't ask whether the process before still runs.

        Raises:
            WriterRunsError: it does.
            DamagedLeaseError: the leases are another lake's, or have no next epoch.
            UnfitStoreError: the store can't do what this depends on.
        """
        # The order, in which each step relies on those before it (docs/fencing.md):
        # 1. The highest epoch there is, by the files and by what tables note: the next number is free only above both.
        # 2. Whether its process still runs. This needs clocks and so may be wrong: it only saves two jobs the conflict.
        # 3. The file of the next epoch, which only one process can add. Here it is decided who has the lease. The loser
        #    of a race has written nothing else yet.
        # 4. Whether the store has really done so: some overwrite, list late, or let several writers win.
        # 5. When the process opens a table, it commits its epoch there (`delta_log`): from then on no process with a
        #    lower one can commit. What the process before commits until then counts, and this one goes on after it.
        # The token of a lease differs for each process, so one whose answer was lost knows its own file again.
        self._filesystem.create_dir(self._root, recursive=True)
        latest = max(self.latest(), at_least)
        if latest >= LAST_EPOCH:
            raise DamagedLeaseError(f"{self._uri}: epoch {latest} has no successor: delete its file")
        before = self.read(latest)
        if own.lake and before.lake and own.lake != before.lake:
            raise DamagedLeaseError(
                f"{self._uri}: the lease of epoch {latest} is another lake's: it was copied here. Delete this folder"
            )
        own = replace(own, locked=alone)
        lock_is_free = alone and before.locked and before.machine == own.machine
        is_gone = latest == 0 or self.is_released(latest) or lock_is_free
        if not (is_gone or take_over) and self._is_alive(latest):
            raise WriterRunsError(self.describe(latest))
        if self._role == JOB or latest == 0:  # the others, some of which start every few minutes, only once
            self._check_races()
        data = json.dumps(asdict(own)).encode()
        name = self._name(latest + 1, "json")
        if not self._new.add(name, data) and self.read(latest + 1) != own:  # its answer may have been lost
            raise WriterRunsError(self.describe(latest + 1))
        self._check_store(latest + 1, name, own, data)
        self._forget_before(latest + 2 - RETAINED)
        return Fence(self, latest + 1, took_over=not is_gone)

    def _check_races(self) -> None:
        """Try whether the store decides between writers that come at the same time. A folder does."""
        if self._new.is_local or (lost := lost_race(self._new)) is None:
            return
        raise UnfitStoreError(
            f"{self._uri}: of writers that came at the same time this store let several {lost}, so two jobs could "
            "write the lake at once: use a store that decides between them (docs/storage.md names some)"
        )

    def _check_store(self, epoch: int, name: str, own: Lease, data: bytes) -> None:
        """Check with the lease that was just added that the store has no fault that is known of some stores."""
        if self._new.add(name, data):
            raise UnfitStoreError(
                f"{self._uri}: this store overwrites a file that must be new (If-None-Match), so two jobs could write "
                "the lake at once: use a store with conditional writes (docs/storage.md)"
            )
        if self.latest() < epoch:
            raise UnfitStoreError(
                f"{self._uri}: this store's listing lacks a file that was just written, so a job could miss what "
                "another has written: use a store whose listings are up to date (docs/storage.md)"
            )
        wrote, found = self.beat(epoch), self._sign(epoch)
        # Another process may have been told, too, that the lease is its own: then lease or sign are the other's.
        if self.read(epoch) not in (own, Lease()) or (found != wrote and SIGN.fullmatch(found)):
            raise UnfitStoreError(
                f"{self._uri}: this store let two processes have epoch {epoch}; the file names "
                f"{self.describe(epoch)}. Use a store that decides between writers that come at the same time "
                "(docs/storage.md names some)"
            )
        if found != wrote:
            raise UnfitStoreError(
                f"{self._uri}: this store gives back other bytes than were written. Some servers keep the checksums of "
                "AWS' libraries within the file: set AWS_REQUEST_CHECKSUM_CALCULATION=when_required (docs/storage.md)"
            )

    def read(self, epoch: int) -> Lease:
        """What the lease of an epoch says."""
        content = self._content(self._name(epoch, "json"))
        known = asdict(Lease())
        return Lease(**{name: content[name] for name in known if isinstance(content.get(name), type(known[name]))})

    def describe(self, epoch: int) -> str:
        """The process of an epoch, in words."""
        lease = self.read(epoch)
        return f"`{lease.command}`, process {lease.process} on {lease.host} (epoch {epoch})"

    def beat(self, epoch: int) -> bytes:
        """Write the sign of life of an epoch, and return it."""
        sign = uuid.uuid4().hex.encode()
        with self._filesystem.open_output_stream(f"{self._root}/{self._name(epoch, 'alive')}") as stream:
            stream.write(sign)
        return sign

    def release(self, epoch: int) -> None:
        """Note that the process of an epoch has ended."""
        with self._filesystem.open_output_stream(f"{self._root}/{self._name(epoch, 'released')}") as stream:
            stream.write(b"released")  # some stores refuse an empty file

    def is_released(self, epoch: int) -> bool:
        """Whether the process of an epoch has noted that it has ended."""
        info = self._filesystem.get_file_info(f"{self._root}/{self._name(epoch, 'released')}")
        return bool(info.type != pafs.FileType.NotFound)

    def _is_alive(self, epoch: int) -> bool:
        """Whether its sign of life changes within `PATIENCE_S`; a process that has just begun may have none yet."""
        first = self._sign(epoch)
        log.info("waiting up to %.0f s for a sign of life of %s", PATIENCE_S, self.describe(epoch))
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if self.is_released(epoch):
                return False
            if self._sign(epoch) != first:
                return True
            time.sleep(BEAT_S / 5)
        return False

    def _sign(self, epoch: int) -> bytes:
        try:
            with self._filesystem.open_input_file(f"{self._root}/{self._name(epoch, 'alive')}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return b""

    def _epochs(self) -> list[int]:
        entries = self._filesystem.get_file_info(pafs.FileSelector(self._root, allow_not_found=True))
        names = (re.fullmatch(rf"{self._role}-(\d{{12}})\.json", entry.base_name) for entry in entries)
        return [int(match[1]) for match in names if match]

    def _forget_before(self, epoch: int) -> None:
        for old in self._epochs():
            if old < epoch:
                for kind in ("alive", "released", "json"):
                    path = f"{self._root}/{self._name(old, kind)}"
                    if self._filesystem.get_file_info(path).type == pafs.FileType.File:
                        self._filesystem.delete_file(path)

    def _content(self, name: str) -> dict[str, Any]:
        try:
            with self._filesystem.open_input_file(f"{self._root}/{name}") as stream:
                content = json.loads(stream.read())
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    def _name(self, epoch: int, kind: str) -> str:
        return f"{self._role}-{epoch:012d}.{kind}"


def this_process(command: str, lake: str = "") -> Lease:
    """The lease of this process; `lake` is the id of the lake's table `pushes`."""
    return Lease(command, socket.gethostname(), _machine(), os.getpid(), uuid.uuid4().hex, lake)


@cache
def _machine() -> str:
    """Differs after a machine's start, and between machines whose containers have one name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return socket.gethostname()
