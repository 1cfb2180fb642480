"""Whether a store decides between writers that come at the same time.

Some look whether a condition holds, and write later: one writer after the other gets the right answer, and of two at
once both are told that they have written. So that is tried before a job depends on it. It can't prove that a store is
right: one that errs once in hundreds of times passes.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from kafka_telemetry_lake.pipelines.lake.log_files import NewFiles

WRITERS, ROUNDS = 6, 6
PATIENCE_S = 2.0  # no round begins later
ONCE = {"max_retries": 0}
SIZE = 16 << 10  # bytes: while a longer body arrives, more can happen


def lost_race(new: NewFiles) -> str | None:
    """What a store does for several writers although it may do it for one; None: nothing was seen.

    Updates are for the store's sake: nothing of a lake needs them, so a store that doesn't know them is fit.

    Args:
        new: a folder in the store. Files are written there and deleted.

    Raises:
        OSError: the store doesn't answer, or refuses.
    """
    import obstore  # noqa: PLC0415  # most lakes are in a folder

    creates, updates = new.store(), new.store(retry_config=ONCE)
    names: list[str] = []
    ends_at = time.monotonic() + PATIENCE_S
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            while len(names) < ROUNDS and (not names or time.monotonic() < ends_at):
                names.append(f"race-{uuid.uuid4().hex}")
                if _winners(pool, creates, names[-1], "create") > 1:
                    return "create the same file (If-None-Match)"
                tag = obstore.head(creates, names[-1])["e_tag"]
                with contextlib.suppress(obstore.exceptions.BaseError):
                    if tag and _winners(pool, updates, names[-1], {"e_tag": tag}) > 1:
                        return "replace the same state of a file (If-Match)"
    except obstore.exceptions.BaseError as error:
        reason = str(error).partition("\n\nDebug source")[0]
        raise OSError(f"{new.uri} can't be written: {' '.join(reason.split())}") from error
    finally:
        with contextlib.suppress(obstore.exceptions.BaseError):
            obstore.delete(creates, names)
    return None


def _winners(pool: ThreadPoolExecutor, store: Any, name: str, mode: Any) -> int:
    """How many of the writers were told that they have written. It may be none: an answer was lost."""
    import obstore  # noqa: PLC0415  # as above

    together = Barrier(WRITERS)

    def write(number: int) -> bool:
        together.wait()
        try:
            obstore.put(store, name, f"{mode} {number}".encode().ljust(SIZE), mode=mode)
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
            return False
        return True

    return sum(pool.map(write, range(WRITERS)))
