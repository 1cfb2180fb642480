"""A job that takes over goes on in a copy of the checkpoints, and what the other one writes goes nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafka_telemetry_lake.pipelines.lake.checkpoint_folders import checkpoints_of, drop_old, own_checkpoints
from kafka_telemetry_lake.pipelines.lake.delta_log import CommitLog, TableLog
from kafka_telemetry_lake.pipelines.lake.errors import FencedError
from kafka_telemetry_lake.pipelines.lake.fence import APP_ID, JOB, Fence, Leases, this_process
from kafka_telemetry_lake.pipelines.lake.notes import FencedNote
from kafka_telemetry_lake.pipelines.tables.operator import METRIC_POINTS, PUSHES


def claim(lake: Path, *, take_over: bool) -> Fence:
    return Leases(str(lake), JOB).acquire(this_process("ingest"), alone=not take_over, take_over=take_over)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for table in (PUSHES, METRIC_POINTS):
        table.create(str(tmp_path))
    for name in ("landing/offsets/0", "landing/offsets/1", "points-state/manifest-0000000001.json", "topics.json"):
        (tmp_path / "_checkpoints" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "_checkpoints" / name).write_text(name)
    (tmp_path / "_checkpoints" / "topics.json.tmp").write_text("being written")
    return tmp_path


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_after_a_clean_end_the_folder_is_the_same(lake: Path) -> None:
    for _ in range(2):
        assert own_checkpoints(str(lake), None, claim(lake, take_over=False)) == f"{lake}/_checkpoints"
    assert checkpoints_of(str(lake)) == f"{lake}/_checkpoints"


def test_a_job_that_takes_over_has_a_copy_and_all_tables(lake: Path) -> None:
    root = lake / "_checkpoints"
    old = claim(lake, take_over=False)
    log, before = TableLog(PUSHES, str(lake), old), files(root)
    own = Path(own_checkpoints(str(lake), None, claim(lake, take_over=True)))
    assert own == root / "epoch-000000000002"
    before.pop("topics.json.tmp")
    assert files(own) == before | {"_whole": "whole"}
    assert checkpoints_of(str(lake)) == str(own)
    for table in (PUSHES, METRIC_POINTS):
        assert DeltaTable(table.uri(str(lake))).transaction_version(APP_ID) == 2
    with pytest.raises(FencedError):
        log.commit([], "job", 1, {})
    (root / "landing" / "offsets" / "2").write_text("of the job before")
    (root / "topics.json").unlink()
    assert not (own / "landing" / "offsets" / "2").exists()
    assert (own / "topics.json").read_text() == "topics.json"


def test_a_copy_that_was_cut_off_is_not_used(lake: Path) -> None:
    claim(lake, take_over=False)
    half = Path(own_checkpoints(str(lake), None, claim(lake, take_over=True)))
    (half / "_whole").unlink()
    (half / "topics.json").write_text("half")
    assert checkpoints_of(str(lake)) == f"{lake}/_checkpoints"
    own = Path(own_checkpoints(str(lake), None, claim(lake, take_over=True)))
    assert own.name == "epoch-000000000003"
    assert (own / "topics.json").read_text() == "topics.json"
    assert not (own / half.name).exists()


def test_the_next_clean_start_deletes_what_was_copied_and_nothing_else(lake: Path) -> None:
    root = lake / "_checkpoints"
    (root / "landing" / "offsets" / "7").write_text("7")
    claim(lake, take_over=False)
    own_checkpoints(str(lake), None, claim(lake, take_over=True))
    last = claim(lake, take_over=True)
    own = Path(own_checkpoints(str(lake), None, last))
    last.release(clean=True)
    (root / "mine.txt").write_text("not the job's")
    (root / "epoch-000000000009").mkdir()
    assert own_checkpoints(str(lake), None, claim(lake, take_over=False)) == str(own)
    assert sorted(path.name for path in root.iterdir()) == [
        "epoch-000000000003", "epoch-000000000009", "mine.txt", "topics.json.tmp",
    ]  # fmt: skip
    assert (own / "landing" / "offsets" / "7").read_text() == "7"
    drop_old(str(lake))
    assert checkpoints_of(str(lake)) == str(own)


def note_of(lake: Path, fence: Fence | None = None) -> FencedNote:
    return FencedNote(str(lake), "_note", ["step"], "delete it", fence)


def test_a_note_of_a_lower_epoch_does_not_count(lake: Path) -> None:
    first, second = claim(lake, take_over=False), claim(lake, take_over=True)
    old, new = note_of(lake, first), note_of(lake, second)
    old.write({"step": 1})
    assert new.read() == {"step": 1}
    new.write({"step": 2})
    old.write({"step": 3})
    assert new.read() == note_of(lake).read() == {"step": 2}
    old.delete()
    assert new.read() == {"step": 2}
    new.write({"step": 4})
    assert sorted(path.name for path in lake.glob("_note*")) == ["_note-e000000000002.json"]
    note_of(lake).write({"step": 5})
    assert new.read() == {"step": 5}, "without a claim it is the note that counts"
    new.delete()
    assert new.read() is None


def test_a_process_that_was_taken_over_may_delete_the_notes_before_it_at_any_moment(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes up between the other's look which notes there are, and what that one does with them."""
    first, second, third = claim(lake, take_over=False), *(claim(lake, take_over=True) for _ in range(2))
    zombie, live = note_of(lake, second), note_of(lake, third)
    look = FencedNote._stored

    def zombie_wakes(note: FencedNote) -> list[int]:
        found = look(note)
        monkeypatch.setattr(FencedNote, "_stored", look)
        zombie.write({"step": 2})
        return found

    note_of(lake, first).write({"step": 1})
    monkeypatch.setattr(FencedNote, "_stored", zombie_wakes)
    assert live.read() == {"step": 2}, "not as if there had never been one"
    note_of(lake, first).write({"step": 1})
    monkeypatch.setattr(FencedNote, "_stored", zombie_wakes)
    live.write({"step": 3})
    assert live.read() == {"step": 3}


def test_the_folder_of_a_later_job_is_not_used(lake: Path) -> None:
    first = claim(lake, take_over=False)
    own_checkpoints(str(lake), None, claim(lake, take_over=True))
    with pytest.raises(FencedError):
        own_checkpoints(str(lake), None, first)


def test_a_copy_that_is_finished_while_tables_get_the_epoch_is_what_is_copied(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(lake, take_over=False)
    second, third = claim(lake, take_over=True), claim(lake, take_over=True)
    created = CommitLog.__init__

    def late(self: CommitLog, uri: str, fence: Fence | None = None) -> None:
        monkeypatch.setattr(CommitLog, "__init__", created)
        own = Path(own_checkpoints(str(lake), None, second))
        (own / "landing" / "offsets" / "2").write_text("of a batch that it has committed")
        created(self, uri, fence)

    monkeypatch.setattr(CommitLog, "__init__", late)
    own = Path(own_checkpoints(str(lake), None, third))
    assert (own / "landing" / "offsets" / "2").exists()
