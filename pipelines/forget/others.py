"""Removes what files outside of tables and state say about an erased client or principal: notes, outboxes, pages."""

from __future__ import annotations

import json
from html import escape
from typing import Any

import pyarrow.fs as pafs

from kafka_telemetry_lake.pipelines.forget.rows import patterns, replaced
from kafka_telemetry_lake.pipelines.forget.subject import Subject
from kafka_telemetry_lake.pipelines.lake.durable import write_json
from kafka_telemetry_lake.pipelines.lake.notes import CHECKSUM, sealed


class OtherFiles:
    """Changes files that are neither Parquet nor state: JSON objects by their structure, others as text."""

    def __init__(self, filesystem: pafs.FileSystem, subject: Subject) -> None:
        self._filesystem, self._subject = filesystem, subject
        self._patterns = patterns(subject.gone | {escape(text) for text in subject.gone})

    def forget(self, path: str, write: bool) -> bool:
        """Remove what a file says about the subject; returns whether it said anything."""
        with self._filesystem.open_input_file(path) as stream:
            data = stream.read()
        text = data.decode("utf-8", "surrogateescape")
        content = _json(text)
        if content is None:
            changed = replaced(text, self._patterns)
            if changed == text:
                return False
            if write:
                with self._filesystem.open_output_stream(f"{path}.part") as stream:
                    stream.write(changed.encode("utf-8", "surrogateescape"))
                self._filesystem.move(f"{path}.part", path)
        else:
            rest = self._without(content)
            if rest == content:
                return False
            if write:
                rest.pop(CHECKSUM, None)
                write_json(self._filesystem, path, sealed(rest) if CHECKSUM in content else rest)
        if write:
            self._drop_checksum(path)
        return True

    def _without(self, value: Any) -> Any:
        """The JSON value without entries about the subject, and without mentions in the others."""
        if isinstance(value, dict):
            parts = {name: self._without(each) for name, each in value.items() if not self._is_about(each)}
            return {replaced(name, self._patterns): each for name, each in parts.items()}
        if isinstance(value, list):
            return [self._without(each) for each in value if not self._is_about(each)]
        return replaced(value, self._patterns)

    def _is_about(self, value: Any) -> bool:
        """Whether it is a row about the subject, the state of a finding that it has, or an alert about that."""
        if not isinstance(value, dict):
            return False
        subject = self._subject
        for row in (value, value.get("latest"), value.get("labels")):
            if not isinstance(row, dict):
                continue
            if subject.cluster_id not in (None, row.get("cluster_id", row.get("cluster"))):
                continue
            if (
                row.get("client_instance_id") in subject.instances
                or row.get("client_id") in subject.client_ids
                or row.get("subject") in subject.texts
            ):
                return True
        return False

    def _drop_checksum(self, path: str) -> None:
        """Delete the checksum that Hadoop keeps next to a local file: it refuses the file if that differs."""
        folder, _, name = path.rpartition("/")
        checksum = f"{folder}/.{name}.crc"
        if self._filesystem.get_file_info(checksum).type == pafs.FileType.File:
            self._filesystem.delete_file(checksum)


def _json(text: str) -> dict[str, Any] | None:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
