"""``telemetry-lake forget`` as a process of `model_jobs`: the command's own code, erasing one push.

A Parquet file is a list of rows there, and a state file one of pushes. What finds the subject and rewrites such a file
is replaced; in which order files, logs, state and notes change is the project's code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from kafka_telemetry_lake.jobs import forget as command
from kafka_telemetry_lake.jobs.settings.forget import ForgetSettings
from kafka_telemetry_lake.pipelines.forget import erasure, files, history, states
from kafka_telemetry_lake.pipelines.forget.files import Found, Rewritten
from kafka_telemetry_lake.pipelines.forget.subject import Subject
from tests.support.model_jobs import LAKE, InOrder, ending
from tests.support.model_store import MISSING, ask

ERASED = 0  # the push that goes
CLIENT = "jHecHqLPQj2rnaP7QRzrmg"  # which no file names: only rows and states have the push
FORGET = "forget"


def forget() -> str:
    """Erase the push; returns how the command ended."""
    return ending(lambda: command.run_job(ForgetSettings(lake=LAKE, client_instance=CLIENT)))


class _TableFolder:
    """Instead of `files.TableFolder`: a file is a JSON list of rows that begin with their push."""

    def __init__(self, _: Any, name: str, root: str, __: Any, erasure: str, ___: Any) -> None:
        self._name, self._root, self._erasure = name, root, erasure

    def find(self, path: str) -> Found:
        return Found(sum(row[0] == ERASED for row in self._rows(path)), 0, False)

    def rewrite(self, path: str) -> Rewritten:
        new = files.new_name(path, self._erasure)
        rows = [row for row in self._rows(path) if row[0] != ERASED]
        if ask("read", f"{self._root}/{new}") == MISSING:
            ask("put", f"{self._root}/{new}", json.dumps(rows).encode())
        return Rewritten(path, new, 1, 1, len(rows), json.dumps({"numRecords": len(rows)}))

    def _rows(self, path: str) -> list[Any]:
        if (data := ask("read", f"{self._root}/{path}")) == MISSING:
            raise FileNotFoundError(path)
        rows: list[Any] = json.loads(data)
        return rows


class _State(SimpleNamespace):
    """Instead of `ShardState`: the pushes of a state file."""

    def without(self, keys: Any) -> _State:
        return _State(pushes=[push for push in self.pushes if push not in keys])


def _read_state(_: Any, path: str) -> _State:
    if (data := ask("read", path)) == MISSING:
        raise FileNotFoundError(path)
    return _State(pushes=json.loads(data))


def _write_state(_: Any, path: str, state: _State) -> int:
    ask("put", path, json.dumps(state.pushes).encode())
    return 1


@contextmanager
def forgetting() -> Iterator[None]:
    """Within `model_jobs.model`: let the command run as a process of it."""
    changes = [
        (command, "is_lake", lambda _: True),
        (command, "clusters_with", lambda *_: []),
        (command, "_report", lambda *_: None),
        # Whom no process of the model is beside.
        (command, "only", lambda *_: nullcontext()),
        (erasure, "subject_of", lambda *_: Subject(instances=frozenset({CLIENT}))),
        (erasure, "TableFolder", _TableFolder),
        (erasure, "ThreadPoolExecutor", InOrder),
        (erasure, "datetime", SimpleNamespace(now=lambda _: SimpleNamespace(isoformat=lambda: "2026-11-24"))),
        (history, "time", SimpleNamespace(time=lambda: 0.0)),
        (Subject, "keys", np.array([ERASED])),
        (states, "SCHEMAS", ("pushes",)),
        (states, "column", lambda pushes, _: np.array(pushes, np.int64)),
        (states, "_read", _read_state),
        (states, "_write", _write_state),
    ]
    with ExitStack() as stack:
        for owner, name, replacement in changes:
            stack.enter_context(patch.object(owner, name, replacement))
        yield
