"""The state of a shard's clients in files of the machine that processes them; a step touches only what it needs.

Numbers are columns in one file that is mapped into memory; texts are appended to another one and referred to by their
place. So a step costs what its clients cost, and a process has no memory of its own for the others. The files are a
copy of table `client_changes`, for one job only: whoever finds them as of another step than the one before, takes the
rows that changed since then from the table, or begins with empty ones.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from filelock import FileLock

from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.state.node_files import node_folder
from kafka_telemetry_lake.pipelines.tables.lifecycle import CLIENT_CHANGES
from kafka_telemetry_lake.udfs.kernels.arrays import Int64s, Objects
from kafka_telemetry_lake.udfs.lifecycle.clients import INDEX, NUMBERS, OBJECTS, Clients, Columns

LEAST_CAPACITY = 1024
SPARE_BYTES = 64 << 20  # of texts
LENGTH = np.dtype("<u4")  # before each text
_COLUMNS = (*NUMBERS, *INDEX, *OBJECTS)  # of the file of numbers; of a text its place, 0 for NULL
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ClientFiles:
    """The files of one shard, open for one process.

    Attributes:
        clients: the state; nothing else may be known of it than `step`.
        step: the step that it is as of; -1: it is empty.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        about = self._read_about()
        (folder / "about.json").unlink(missing_ok=True)  # until `done`, the files are as of no step
        if about is None:
            self.clear()
            return
        self.step, self._texts_at_first = about["step"], about["texts_at_first"]
        self._texts = TextFile(folder / "texts", about["texts"])
        columns = FileColumns(folder / "numbers", self._texts, about["capacity"])
        partitions = [(source, topic, partition) for source, topic, partition in about["partitions"]]
        self.clients = Clients(columns, about["size"], partitions, about["brokers"])

    def clear(self) -> None:
        """Forget the state."""
        self.step, self._texts_at_first = -1, 0
        self._texts = TextFile(self._folder / "texts", 0)
        self.clients = Clients(FileColumns(self._folder / "numbers", self._texts, 0))

    def close(self) -> None:
        """Close the files; the state is of no more use to this process."""
        self._texts.close()

    def done(self, step: int) -> None:
        """Note that the files are as of a step, unless most of their texts may be of clients that are gone."""
        clients = self.clients
        self._texts_at_first = self._texts_at_first or self._texts.end
        if self._texts.end > 2 * self._texts_at_first + SPARE_BYTES:
            return
        about = {
            "step": step,
            "boot": _boot(),
            "size": clients.size,
            "capacity": clients.columns.capacity,
            "partitions": clients.partitions,
            "brokers": clients.brokers,
            "texts": self._texts.end,
            "texts_at_first": self._texts_at_first,
        }
        part = self._folder / "about.part"
        part.write_text(json.dumps(about), "utf-8")
        part.replace(self._folder / "about.json")

    def _read_about(self) -> dict[str, Any] | None:
        with suppress(OSError, ValueError):
            about: dict[str, Any] = json.loads((self._folder / "about.json").read_text("utf-8"))
            needed = {"numbers": 8 * len(_COLUMNS) * about["capacity"], "texts": about["texts"]}
            there = all((self._folder / name).stat().st_size >= size for name, size in needed.items() if size)
            if there and about["boot"] == _boot():
                return about
        return None  # of a step that failed; what was mapped may be lost with the machine's power


@contextmanager
def client_files(lake: Lake, job: str, shard: int, shards: int) -> Iterator[ClientFiles]:
    """Open a shard's files for the block; another process that wants them waits.

    Args:
        job: a name that no other job has: nobody else's files are used, and those of jobs before are deleted.

    Raises:
        OSError: the disk is full or broken.
    """
    root = node_folder(CLIENT_CHANGES.uri(lake.uri))
    folder = root / f"{job}-{shard}-of-{shards}"
    if not folder.exists():
        for other in root.glob(f"*-{shard}-of-*"):
            if not other.name.startswith(job):
                shutil.rmtree(other, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        files = ClientFiles(folder)
        try:
            yield files
        finally:
            files.close()


class FileColumns(Columns):
    """Columns in a file of numbers and a file of texts."""

    def __init__(self, path: Path, texts: TextFile, capacity: int) -> None:
        self._path, self._texts = path, texts
        self.numbers, self.objects = {}, {}
        self._use(self._mapped(capacity) if capacity else np.zeros((len(_COLUMNS), 0), np.int64))

    def take(self, slots: Int64s) -> None:
        """Move these slots to the front, in their order; what is behind them becomes NULL."""
        for name, column in zip(_COLUMNS, self._rows, strict=True):
            column[: len(slots)] = column[slots]
            column[len(slots) :] = NUMBERS.get(name, 0)

    def grow(self, capacity: int) -> None:
        """Make room; what is new is NULL."""
        capacity, before = max(capacity, LEAST_CAPACITY), self._rows
        part = self._path.with_suffix(".part")
        more = capacity - before.shape[1]
        with part.open("wb") as file:  # all of it: a mapped page that the disk has no room for would end the process
            for name, column in zip(_COLUMNS, before, strict=True):
                file.write(column.tobytes())
                file.write(np.full(more, NUMBERS.get(name, 0), np.int64).tobytes())
        part.replace(self._path)
        self._use(self._mapped(capacity))

    def _mapped(self, capacity: int) -> Any:
        return np.memmap(self._path, np.int64, "r+", shape=(len(_COLUMNS), capacity))

    def _use(self, rows: Any) -> None:
        self._rows = rows
        columns: dict[str, Int64s] = {name: np.asarray(rows[row]) for row, name in enumerate(_COLUMNS)}
        self.numbers = {name: columns[name] for name in (*NUMBERS, *INDEX)}
        self.objects = {name: TextColumn(columns[name], self._texts) for name in OBJECTS}


class TextColumn:
    """A column of texts, as `numpy` has one of objects; `places` are those of its texts."""

    def __init__(self, places: Int64s, texts: TextFile) -> None:
        self._places, self._texts = places, texts

    def __getitem__(self, slots: Int64s) -> Objects:
        places, rows = np.unique(self._places[slots], return_inverse=True)
        texts: Objects = self._texts.read(places)[rows.reshape(-1)]
        return texts

    def __setitem__(self, slots: Int64s, texts: Objects) -> None:
        self._places[slots] = self._texts.add(texts)


class TextFile:
    """A file of texts, each once as far as this process has seen them.

    Attributes:
        end: of the texts, in bytes; what is behind it is of a step that failed.
    """

    def __init__(self, path: Path, end: int) -> None:
        self._file: IO[bytes] = path.open("r+b" if end else "wb")
        self.end = end
        self._known: dict[str | None, int] = {None: 0}

    def close(self) -> None:
        self._file.close()

    def read(self, places: Int64s) -> Objects:
        """The texts of ascending places; None for 0."""
        found = np.full(len(places), None, object)
        is_text = places > 0
        if is_text.any():
            found[is_text] = self._read(places[is_text] - 1).to_numpy(zero_copy_only=False)
        return found

    def _read(self, starts: Int64s) -> pa.LargeStringArray:
        data = np.memmap(self._path, np.uint8, "r", shape=(self.end,))
        size = LENGTH.itemsize
        lengths = data[starts[:, None] + np.arange(size)].view(LENGTH).reshape(-1).astype(np.int64)
        ends = np.append(0, np.cumsum(lengths))
        which = np.repeat(starts + size - ends[:-1], lengths) + np.arange(ends[-1])
        texts = np.asarray(data[which])
        return pa.LargeStringArray.from_buffers(len(starts), pa.py_buffer(ends), pa.py_buffer(texts))

    @property
    def _path(self) -> str:
        return str(self._file.name)

    def add(self, texts: Objects) -> Int64s:
        """The places of texts; new ones are appended."""
        data = list[bytes]()
        end = self.end
        for text in set(texts.tolist()) - self._known.keys():
            encoded = text.encode()
            data += [len(encoded).to_bytes(LENGTH.itemsize, "little"), encoded]
            self._known[text] = end + 1
            end += LENGTH.itemsize + len(encoded)
        self._file.seek(self.end)
        self._file.write(b"".join(data))
        self._file.flush()
        self.end = end
        return np.fromiter(map(self._known.__getitem__, texts), np.int64, len(texts))


def _boot() -> str:
    with suppress(OSError):
        return _BOOT_ID.read_text("utf-8").strip()
    return ""
