"""A Python worker refuses a task of another release, before it looks for any of that release's classes."""

from __future__ import annotations

import ast
import pickle
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import pytest

from kafka_telemetry_lake.pipelines.runtime import worker_task
from kafka_telemetry_lake.pipelines.runtime.worker_task import OtherReleaseError, WorkerTask, release
from kafka_telemetry_lake.udfs.sources import digest

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Inner(WorkerTask):
    number: int = 1


@dataclass(frozen=True)
class Task(WorkerTask):
    name: str
    inner: Inner | None = None


def test_a_task_is_the_same_on_the_other_side() -> None:
    for task in (Task("a"), Task("b", Inner(7)), replace(Task("c"), inner=Inner())):
        assert pickle.loads(pickle.dumps(task)) == task


def test_a_task_of_another_release_is_refused_in_one_line_before_its_classes_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pickled = pickle.dumps(Task("a"))
    monkeypatch.delattr(f"{__name__}.Task")  # the worker's release has no such class
    with pytest.raises(AttributeError, match="Task"):
        pickle.loads(pickled)
    monkeypatch.setattr(worker_task, "release", lambda: "kafka-telemetry-lake 9.9.9 (sources 0-0)")
    with pytest.raises(OtherReleaseError) as refused:
        pickle.loads(pickled)
    assert str(refused.value).endswith(
        f"has kafka-telemetry-lake 9.9.9 (sources 0-0), the driver has {release()}: install the same wheel on every "
        "machine"
    )
    assert "\n" not in str(refused.value)


def test_a_release_is_its_version_and_its_sources(tmp_path: Path) -> None:
    assert release().startswith(f"kafka-telemetry-lake {version('kafka-telemetry-lake')} (sources ")
    folders = []
    for number, (name, text) in enumerate([("a.py", "x"), ("a.py", "y"), ("b.py", "x"), ("a.txt", "x"), ("b.txt", "")]):
        folder = tmp_path / str(number) / "deep"
        folder.mkdir(parents=True)
        (folder / name).write_text(text)
        folders.append(folder.parent)
    digests = [digest(folder) for folder in folders]
    assert len(set(digests[:3])) == 3
    assert digests[3] == digests[4]  # nothing but Python files counts


def test_every_task_of_spark_is_one() -> None:
    """A class that Spark ships takes batches of Arrow, or is a `StatefulProcessor`."""
    found, others = set[str](), set[str]()
    for path in [*(ROOT / "pipelines").rglob("*.py"), *(ROOT / "jobs").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef):
                continue
            bases = {ast.unparse(base) for base in node.bases}
            calls = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__call__"]
            takes_batches = any("RecordBatch" in ast.unparse(call.args) for call in calls)
            if takes_batches or "StatefulProcessor" in bases:
                (found if "WorkerTask" in bases else others).add(node.name)
    assert found == {"PackTask", "ShardProcessor", "ShardTask", "ShardsTask", "StoreTask", "UnpackTask"}
    assert others == set()
