"""Asks the job that runs on a lake for another number of shards: it changes them before its next batch.

A file in the lake's folder `_writers` has the number. The job deletes it when the number counts, or writes into it why
it can't be. A job that starts finds it too.
"""

from __future__ import annotations

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.lake.fence import FOLDER
from kafka_telemetry_lake.pipelines.lake.json_files import read_json, write_json
from kafka_telemetry_lake.pipelines.lake.paths import filesystem_of
from kafka_telemetry_lake.pipelines.tables.table import table_uri

FILE = "reshard.json"


class ReshardRequest:
    """The request of one lake; there is one at a time, the latest."""

    def __init__(self, lake: str) -> None:
        self._filesystem, folder = filesystem_of(table_uri(lake, FOLDER))
        self._path = f"{folder}/{FILE}"

    def ask(self, shards: int) -> None:
        """Ask for so many shards."""
        self._filesystem.create_dir(self._path.rpartition("/")[0], recursive=True)
        write_json(self._filesystem, self._path, {"shards": shards, "refused": None})

    def asked(self) -> int | None:
        """The number that is asked for and not refused; None: none is."""
        content = read_json(self._filesystem, self._path)
        return None if content is None or content["refused"] is not None else int(content["shards"])

    def refuse(self, reason: str) -> None:
        """Say why it can't be."""
        write_json(self._filesystem, self._path, {"shards": 0, "refused": reason})

    def refusal(self) -> str | None:
        """Why the latest request can't be; None: it isn't refused."""
        content = read_json(self._filesystem, self._path)
        return None if content is None else content["refused"]

    def delete(self) -> None:
        """End the request: it is done, or withdrawn."""
        if self._filesystem.get_file_info(self._path).type != pafs.FileType.NotFound:
            self._filesystem.delete_file(self._path)
