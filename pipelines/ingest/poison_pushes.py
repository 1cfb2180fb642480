"""Isolates pushes whose processing fails: each is identified and quarantined, and its batch continues.

A push that makes a decoder, a kernel or a row builder fail would do so at every start of the job. So the pushes of a
slice are first processed in a trial: in a forked child with bounded memory and time, against the shard's own state. A
part that fails is halved until single pushes fail. Those are marked as rejected, and their payload is not decoded.

An ordinary attempt of a task runs no trials; its only cost is a timer (`processor_limit`). Trials run after an attempt
has failed: see `operator_task.ShardTask`.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from kafka_telemetry_lake.udfs.conversion.compression import decompress
from kafka_telemetry_lake.udfs.errors import TelemetryLakeError
from kafka_telemetry_lake.udfs.limits import BUDGET, Limits
from kafka_telemetry_lake.udfs.rows import PUSHES_IN

PROCESSING_FAILED = "PROCESSING_FAILED"
# Limit on processor time. Ordinary pushes take 0.05 us per decompressed byte, the worst accepted push 0.7 us.
SECONDS_PER_BYTE = 2e-6
TRIAL_GRACE_S = 5.0  # added for any trial
TASK_GRACE_S = 30.0  # added for any part of an ordinary attempt
WALL_PER_PROCESSOR = 20  # wall-clock limit per processor second: generous for a busy machine, yet ends a hung child
# Memory that a trial may add to the task's. It is address space, which allocators reserve in advance.
TRIAL_BYTES = 1 << 30
MEMORY_PER_BYTE = 64  # added for each decompressed byte; at most `BUDGET.bytes` are processed at a time
MOST_TIMEOUTS = 60  # per slice: each costs seconds; after that many, a failing part is set aside as a whole
MOST_LINES = 20  # log lines per task
LONGEST_ERROR = 300

# Columns that are cleared for the last trial. Without them the push has no client, so no client state.
_DISPENSABLE = [
    name
    for name in PUSHES_IN.names
    if name not in ("source", "cluster_id", "topic", "partition", "offset", "landed_at", "payload")
]


class PushesFailedError(TelemetryLakeError):
    """Pushes can neither be processed nor set aside; the message names client, topic, partition, offset and cause."""


@dataclass(frozen=True)
class Failure:
    """How a trial ended."""

    error: str
    timed_out: bool = False


Trial = Callable[[pa.Table], Failure | None]


@dataclass
class Isolation:
    """One task's search for the pushes that make it fail.

    Attributes:
        trial: processes pushes against the current state and discards the results.
        pushes: number of pushes set aside.
        lines: log lines about them, at most `MOST_LINES`.
    """

    trial: Trial
    pushes: int = 0
    lines: list[str] = field(default_factory=list)

    def sound_parts(self, pushes: pa.Table) -> Iterator[pa.Table]:
        """Yield the pushes in order, in parts that passed a trial. Process each part before requesting the next."""
        timeouts = 0
        waiting = [pushes]
        while waiting:
            part = waiting.pop()
            failure = self.trial(part)
            if failure is None:
                yield part
                continue
            timeouts += failure.timed_out
            if part.num_rows > 1 and timeouts <= MOST_TIMEOUTS:
                half = part.num_rows // 2
                waiting += [part.slice(half), part.slice(0, half)]
            else:
                yield from self._set_aside(part, failure)

    def _set_aside(self, part: pa.Table, failure: Failure) -> Iterator[pa.Table]:
        """Mark the pushes as rejected. If processing still fails, also clear the columns that describe the client."""
        rejected = _rejected(part, failure.error)
        problem = self.trial(rejected)
        if problem is not None and part.num_rows > 1:
            for row in range(part.num_rows):
                yield from self._set_aside(part.slice(row, 1), failure)
            return
        if problem is not None:
            rejected = _rejected(_without_client(part), f"{name_of(part)}: {failure.error}")
            problem = self.trial(rejected)
        if problem is not None:
            raise PushesFailedError(f"{name_of(part)} can't be set aside: {problem.error}; at first: {failure.error}")
        self.pushes += part.num_rows
        if len(self.lines) < MOST_LINES:
            self.lines.append(f"{name_of(part)}: {failure.error}")
        yield rejected


def name_of(pushes: pa.Table) -> str:
    """Client instance, topic, partition and offset of the first push, and how many more there are."""
    first = pushes.slice(0, 1).to_pylist()[0]
    more = f" and {pushes.num_rows - 1} more" if pushes.num_rows > 1 else ""
    return f"client {first['client_instance_id']}, {first['topic']}/{first['partition']}/{first['offset']}{more}"


@contextlib.contextmanager
def blaming(name: Callable[[], str]) -> Iterator[None]:
    """Re-raise an error as ``PushesFailedError`` that names the pushes. System errors pass unchanged."""
    try:
        yield
    except Exception as error:
        if system_error(error) is not None:
            raise
        raise PushesFailedError(f"{name()}: {short(error)}") from error


def processor_limit(seconds: float) -> None:
    """End this process with SIGPROF after it has used this much more processor time; 0 removes the limit.

    The operating system must do it: while a kernel loops, Python runs no signal handler and no other thread.
    """
    signal.setitimer(signal.ITIMER_PROF, seconds)


def task_limit(limits: Limits) -> float:
    """Processor seconds for one part of an ordinary attempt, which decompresses to about `BUDGET.bytes`."""
    return TASK_GRACE_S + SECONDS_PER_BYTE * max(BUDGET.bytes, limits.max_decompressed_bytes)


def limit_by_size(pushes: pa.Table, limits: Limits) -> None:
    """In a trial: limit processor time and memory in proportion to the decompressed size of the pushes."""
    processor_limit(TRIAL_GRACE_S + SECONDS_PER_BYTE * pushes["payload"].nbytes)
    wanted = pushes.filter(pc.is_null(pushes["reject_reason"])).combine_chunks()
    payload, compression = (wanted[name].combine_chunks() for name in ("payload", "compression_type"))
    size = done = 0
    while done < len(payload):
        part = decompress(payload[done:], compression[done:], limits, BUDGET.bytes)
        done += max(1, len(part.data))
        size += int(part.data.nbytes)
        processor_limit(TRIAL_GRACE_S + SECONDS_PER_BYTE * (BUDGET.bytes + pushes["payload"].nbytes))
        del part
    processor_limit(TRIAL_GRACE_S + SECONDS_PER_BYTE * size)
    _limit_memory(TRIAL_BYTES + MEMORY_PER_BYTE * min(size, max(BUDGET.bytes, limits.max_decompressed_bytes)))


def in_child(work: Callable[[], None], limits: Limits) -> Failure | None:
    """Run `work` in a forked child, which inherits this process's memory. Returns None if it succeeds.

    The child's address space, processor time and wall-clock time are limited.

    Raises:
        OSError: the system could not create the child or failed it; no push is to blame.
    """
    processor_limit(0)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _run(work, writer, task_limit(limits))
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        output = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        timed_out = name in ("SIGPROF", "SIGALRM")
        return Failure("takes more time than any push may" if timed_out else f"ends its process: {name}", timed_out)
    if not output:
        return Failure(f"ends its process: exit code {os.WEXITSTATUS(status)}")
    answer = json.loads(output)
    if answer["number"] is not None:
        raise OSError(answer["number"], answer["error"])
    return None if answer["error"] is None else Failure(answer["error"])


def _run(work: Callable[[], None], writer: int, limit_s: float) -> None:
    """Run the child: set its limits, do the work, write the result as JSON and exit."""
    try:
        gc.freeze()  # otherwise a garbage collection would copy every page
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # if memory runs out, the system must kill the child, not its parent
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        for number in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, WALL_PER_PROCESSOR * limit_s)
        processor_limit(limit_s)
        _limit_memory(TRIAL_BYTES + MEMORY_PER_BYTE * BUDGET.bytes)
        work()
        answer: dict[str, str | int | None] = {"error": None, "number": None}
    except BaseException as error:
        answer = {"error": short(error), "number": system_error(error)}
    finally:  # exit at once: the parent's exit handlers must not run here
        with contextlib.suppress(BaseException):
            os.write(writer, json.dumps(answer).encode())
        os._exit(0)


def system_error(error: BaseException) -> int | None:
    """The errno of an operating system error, such as a full disk, for which no push is to blame; else None.

    ENOMEM doesn't count, because a push can exhaust the memory of a trial. Arrow's own errors have no errno.
    """
    number = error.errno if isinstance(error, OSError) else None
    return None if number == errno.ENOMEM else number


def short(error: BaseException) -> str:
    """Type and message of an error, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_ERROR]


def _limit_memory(more: int) -> None:
    statm = Path("/proc/self/statm")
    if statm.exists():  # Linux; elsewhere only time is bounded
        size = int(statm.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        limit = size + more if most == resource.RLIM_INFINITY else min(most, size + more)
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))


def _rejected(pushes: pa.Table, error: str) -> pa.Table:
    for name, text in (("reject_reason", PROCESSING_FAILED), ("reject_detail", error)):
        values = pa.array([text] * pushes.num_rows, pa.string())
        pushes = pushes.set_column(pushes.schema.get_field_index(name), PUSHES_IN.field(name), values)
    return pushes


def _without_client(pushes: pa.Table) -> pa.Table:
    for name in _DISPENSABLE:
        field_ = PUSHES_IN.field(name)
        pushes = pushes.set_column(pushes.schema.get_field_index(name), field_, pa.nulls(pushes.num_rows, field_.type))
    return pushes
