"""Work in a thread beside a block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(name: str, work: Callable[[threading.Event], object], patience_s: float | None = None) -> Iterator[None]:
    """Run `work` in a thread while the block runs; work ends soon after the event that it is given is set.

    The end of the block sets the event and waits. The process may end while the thread still runs, but this aborts the
    process if the thread is in a library's C++ code just then.

    Args:
        name: of the thread.
        patience_s: seconds to wait for the thread; None: until it ends.
    """
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(patience_s)
