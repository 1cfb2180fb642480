"""Selects the stored pushes for a replay: files of table `pushes`, or filtered copies of files with other pushes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.lake import Lake
from kafka_telemetry_lake.pipelines.lake.stored_pushes import IDENTITY, ask, same_push
from kafka_telemetry_lake.pipelines.state.snapshots import Snapshot
from kafka_telemetry_lake.pipelines.tables.operator import PUSH_OUTCOMES, PUSHES
from kafka_telemetry_lake.pipelines.tables.table import LANDED_DATE

COPIES = "_replay"  # a folder in that of table pushes


@dataclass(frozen=True)
class PushFile:
    """A file of table `pushes` to replay: path in the table's folder, bytes, range of offsets in each partition."""

    path: str
    size: int
    spans: dict[int, tuple[int, int]]

    def overlaps(self, other: PushFile) -> bool:
        both = self.spans.keys() & other.spans.keys()
        return any(self.spans[p][0] <= other.spans[p][1] and other.spans[p][0] <= self.spans[p][1] for p in both)


def batches_of(files: Sequence[PushFile], batch_bytes: int) -> list[list[PushFile]]:
    """Group files into batches of about `batch_bytes`. Files with overlapping offsets share one, to preserve order."""
    batches: list[list[PushFile]] = []
    for file in files:
        first = next((n for n, batch in enumerate(batches) if any(file.overlaps(other) for other in batch)), None)
        if first is not None:
            batches[first:] = [[other for batch in batches[first:] for other in batch] + [file]]
        elif batches and sum(other.size for other in batches[-1]) + file.size <= batch_bytes:
            batches[-1].append(file)
        else:
            batches.append([file])
    return batches


def push_files(
    lake: str, generation: str, excluded: pads.Dataset | None = None, wanted: pads.Dataset | None = None
) -> list[PushFile]:
    """The files to replay, in the order of landing.

    A file may also contain pushes that are not to be replayed, for example a compacted file with pushes from before the
    snapshot. The other pushes are then copied to a new file, in a folder that Delta's readers ignore.

    Args:
        lake: folder or URI of the lake.
        generation: name of the folder for copies.
        excluded: rows of `push_outcomes` whose pushes are not to be replayed, such as those before a snapshot.
        wanted: rows of `push_outcomes` whose pushes are to be replayed; None: all.
    """
    of = Lake(lake)
    filesystem, root = of.folder(PUSHES)
    active = pa.table(of.table(PUSHES).get_add_actions()).to_pylist()
    result: list[PushFile] = []
    for row in sorted(
        active, key=lambda row: (row["partition"][LANDED_DATE.name], str((row["min"] or {}).get("landed_at")))
    ):
        path, size = unquote(row["path"]), row["size_bytes"]
        if excluded is not None or wanted is not None:
            file = pq.ParquetFile(f"{root}/{path}", filesystem=filesystem)
            selected = _select(file.read(list(IDENTITY)), excluded, wanted)
            if selected.num_rows == 0:
                continue
            if selected.num_rows < file.metadata.num_rows:
                path = f"{COPIES}/{generation}/{len(result):06d}.parquet"
                filesystem.create_dir(f"{root}/{COPIES}/{generation}", recursive=True)
                pq.write_table(_select(file.read(), excluded, wanted), f"{root}/{path}", filesystem=filesystem)
        spans = pq.ParquetFile(f"{root}/{path}", filesystem=filesystem).read(["partition", "offset"])
        bounds = spans.group_by("partition").aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
        result.append(PushFile(path, size, {b["partition"]: (b["offset_min"], b["offset_max"]) for b in bounds}))
    return result


def _select(pushes: pa.Table, excluded: pads.Dataset | None, wanted: pads.Dataset | None) -> pa.Table:
    """The pushes that are in `wanted` and not in `excluded`, by partition and offset."""
    low, high = pc.min_max(pushes["offset"]).as_py().values()
    if low is None:
        return pushes
    for outcomes, join in ((excluded, "ANTI"), (wanted, "SEMI")):
        if outcomes is None:
            continue
        near = outcomes.to_table(list(IDENTITY), filter=(pads.field("offset") >= low) & (pads.field("offset") <= high))
        with duckdb.connect() as connection:
            connection.register("candidates", pushes)
            connection.register("near", near)
            pushes = connection.sql(
                f'FROM candidates {join} JOIN near ON {same_push("candidates", "near")} ORDER BY "partition", "offset"'
            ).to_arrow_table()
    return pushes


def dataset(uri: str, version: int | None = None) -> pads.Dataset:
    """A table's latest version, or the given one."""
    return DeltaTable(uri, version=version).to_pyarrow_dataset()


def count_missing_pushes(lake: Lake, snapshot: Snapshot | None, until: int | None = None) -> int:
    """Number of processed pushes that table `pushes` no longer contains.

    Args:
        snapshot: exclude pushes that were processed before it.
        until: only pushes in this version of `push_outcomes`; None: the latest.
    """
    tables = {"processed": lake.rows(PUSH_OUTCOMES, until), "pushes": lake.rows(PUSHES)}
    query = f"SELECT count(*) FROM processed ANTI JOIN pushes ON {same_push('processed', 'pushes')}"
    if snapshot is not None:
        tables["earlier"] = snapshot.dataset(lake, PUSH_OUTCOMES)
        query += f" ANTI JOIN earlier ON {same_push('processed', 'earlier')}"
    ((missing,),) = ask(query, **tables)
    return int(missing)


def drop_copies(lake: str) -> None:
    """Delete the copies that `push_files` made."""
    filesystem, root = Lake(lake).folder(PUSHES)
    if filesystem.get_file_info(f"{root}/{COPIES}").type != pafs.FileType.NotFound:
        filesystem.delete_dir(f"{root}/{COPIES}")
