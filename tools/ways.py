"""``python -m tools.ways``: how many files a payload, a finding and a page of the dashboard go through, and which.

A way is a list of hops: a function, and one that it calls. A file counts once a way enters one of its functions. A hop
is on the list for one of two reasons only. Either what goes the way changes its form in the called function, and the
hop says into what; or the way goes on from there. So a function that only looks, counts, waits, opens, notes, or hands
on some of the rows as they are is not on the way, and neither is one that makes an object; the call that leads on is.
Where a way branches (few pushes are converted where they are stored, many by tasks of their own), all branches count.

Each hop is checked against the sources (`problems`): the calling function names the called one, by an import, as a
method of a class that its module imports or has, or by the name of a module that it imports when it runs. A hop that is
no longer true, begins nowhere or leads nowhere is an error, so no file between two calls can be left out. That the way
passes each station of the tour is a test.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tools.code_links import PREFIX, Module

ROOT = Path(__file__).parents[1]
_HOP = re.compile(r"(\S+):(\S+) -> (\S+):(\S+)(?: = (.+))?")

# From the command to a row of table `metric_points`.
PAYLOAD = """
jobs.cli:main -> jobs.cli:run_command
jobs.cli:run_command -> jobs.settings.base:parse = settings, of words
jobs.cli:run_command -> jobs.cli:settings_of
jobs.cli:settings_of -> jobs.settings.ingest:IngestSettings = where to read and to write
jobs.cli:run_command -> jobs.cli:job_of
jobs.cli:job_of -> jobs.ingest:run_job
jobs.ingest:run_job -> jobs.ingest:_run_in_session
jobs.ingest:_run_in_session -> jobs.ingest:RunningJob.run
jobs.ingest:RunningJob.run -> pipelines.ingest.streams:start_landing
pipelines.ingest.streams:start_landing -> pipelines.ingest.landing_rows:landing_rows
pipelines.ingest.landing_rows:landing_rows -> pipelines.ingest.sources:KafkaSource.pushes = records of the topic
pipelines.ingest.landing_rows:landing_rows -> pipelines.ingest.landing_rows:to_landed = what identifies a push
pipelines.ingest.streams:start_landing -> pipelines.ingest.streams:LandingRecords.store
pipelines.ingest.streams:LandingRecords.store -> pipelines.ingest.store_task:store
pipelines.ingest.store_task:store -> pipelines.ingest.store_task:StoreTask.__call__
pipelines.ingest.store_task:StoreTask.__call__ -> pipelines.ingest.landing_rows:to_pushes = rows of table pushes
pipelines.ingest.store_task:StoreTask.__call__ -> pipelines.lake.table_files:TableFiles.write = files of table pushes
pipelines.ingest.streams:start_landing -> pipelines.ingest.streams:LandingBatches.finish
pipelines.ingest.streams:LandingBatches.finish -> pipelines.lake.delta_log:TableLog.commit = actions of a commit
pipelines.lake.delta_log:TableLog.commit -> pipelines.lake.delta_log:CommitLog.append
pipelines.lake.delta_log:CommitLog.append -> pipelines.lake.delta_log:CommitLog._append
pipelines.lake.delta_log:CommitLog._append -> pipelines.lake.log_files:LogFiles.add = a version of the table
pipelines.ingest.store_task:StoreTask.__call__ -> pipelines.ingest.operator_task:ShardTask.__call__
pipelines.ingest.streams:LandingBatches.finish -> pipelines.ingest.operator:Operator.catch_up
pipelines.ingest.operator:Operator.catch_up -> pipelines.ingest.operator:Operator.run_batch
pipelines.ingest.operator:Operator.run_batch -> pipelines.ingest.operator_task:run_tasks
pipelines.ingest.operator_task:run_tasks -> pipelines.ingest.operator_task:ShardTask.__call__
pipelines.ingest.operator_task:ShardTask.__call__ -> pipelines.ingest.operator_task:ShardTask._attempt
pipelines.ingest.operator_task:ShardTask._attempt -> pipelines.ingest.push_files:PushFiles.slices = pushes of a shard
pipelines.ingest.operator_task:ShardTask._attempt -> pipelines.ingest.operator_task:PushConversion.run
pipelines.ingest.operator_task:PushConversion.run -> udfs.conversion.shard:process_parts
udfs.conversion.shard:process_parts -> udfs.conversion.shard:_parts
udfs.conversion.shard:_parts -> udfs.conversion.payloads:read_payloads
udfs.conversion.payloads:read_payloads -> udfs.conversion.compression:decompress = bytes of MetricsData
udfs.conversion.payloads:read_payloads -> udfs.conversion.payloads:_decode_within
udfs.conversion.payloads:_decode_within -> udfs.otlp.decode:decode
udfs.otlp.decode:decode -> udfs.otlp.decode:_decode_fast
udfs.otlp.decode:_decode_fast -> udfs.otlp.kernel:decode
udfs.otlp.kernel:decode -> udfs.otlp.kernel:decode_slices = tables of points
udfs.otlp.kernel:decode_slices -> udfs.otlp.kernel:fill
udfs.otlp.kernel:fill -> udfs.otlp.wire_messages:add_payload
udfs.otlp.wire_messages:add_payload -> udfs.otlp.wire_messages:add_resource_metrics
udfs.otlp.wire_messages:add_resource_metrics -> udfs.otlp.wire_messages:add_scope_metrics
udfs.otlp.wire_messages:add_scope_metrics -> udfs.otlp.wire_messages:add_metric
udfs.otlp.wire_messages:add_metric -> udfs.otlp.wire_messages:add_data
udfs.otlp.wire_messages:add_data -> udfs.otlp.wire_messages:add_point
udfs.otlp.wire_messages:add_point -> udfs.otlp.wire_points:number_point = values of a data point
udfs.conversion.shard:_parts -> udfs.conversion.shard:_process
udfs.conversion.shard:_process -> udfs.conversion.points:read_points = points with series, time and reason
udfs.conversion.shard:_process -> udfs.conversion.series:convert
udfs.conversion.series:convert -> udfs.conversion.series:_convert_numbers = deltas
udfs.conversion.series:_convert_numbers -> udfs.conversion.statuses:status_of = which case a point is
udfs.conversion.shard:_process -> udfs.conversion.point_rows:metric_points = rows of table metric_points
pipelines.ingest.operator_task:PushConversion.run -> pipelines.ingest.operator_task:TaskResults.add
pipelines.ingest.operator_task:TaskResults.add -> pipelines.lake.table_files:GatheredTableFiles.write = its files
pipelines.ingest.operator:Operator.run_batch -> pipelines.ingest.operator:Operator._finish
pipelines.ingest.operator:Operator._finish -> pipelines.ingest.operator:Operator._commit
pipelines.ingest.operator:Operator._commit -> pipelines.lake.delta_log:TableLog.commit
"""

# From a rule in YAML to a row of table `finding_changes`.
FINDING = """
jobs.findings:evaluate -> pipelines.findings.evaluation.evaluator:Evaluator.evaluate
pipelines.findings.evaluation.evaluator:Evaluator.evaluate -> pipelines.findings.evaluation.evaluator:Evaluator._step
pipelines.findings.evaluation.evaluator:Evaluator._step -> pipelines.findings.evaluation.lake_hours:LakeHours.hours
pipelines.findings.evaluation.lake_hours:LakeHours.hours -> pipelines.findings.evaluation.lake_hours:LakeHours._open
pipelines.findings.evaluation.lake_hours:LakeHours._open -> pipelines.query.views:needed
pipelines.query.views:needed -> pipelines.query.views:_texts
pipelines.query.views:_texts -> pipelines.findings.views:finding_values
pipelines.findings.views:finding_values -> pipelines.findings.rules:overridden_rules
pipelines.findings.rules:overridden_rules -> pipelines.findings.rules:rules
pipelines.findings.rules:rules -> pipelines.findings.rules:parse_rule
pipelines.findings.rules:parse_rule -> pipelines.findings.model:Rule = a rule, of YAML
pipelines.findings.rules:overridden_rules -> pipelines.findings.model:OverriddenRule = other bounds
pipelines.findings.views:finding_values -> pipelines.findings.views:of_rule
pipelines.findings.views:of_rule -> pipelines.findings.model:Rule.condition_sql = SQL of the condition
pipelines.query.views:_texts -> pipelines.sql_text:filled = the text of view findings
pipelines.findings.evaluation.lake_hours:LakeHours._open -> pipelines.query.views:create_views
pipelines.query.views:create_views -> pipelines.query.views:View.duckdb = for DuckDB
pipelines.findings.evaluation.evaluator:Evaluator._step -> pipelines.findings.evaluation.lake_hours:Hours.found = rows
pipelines.findings.evaluation.evaluator:Evaluator._step -> udfs.findings.states:advance = changes of states
pipelines.findings.evaluation.evaluator:Evaluator._step -> pipelines.findings.evaluation.evaluator:_row = rows to add
pipelines.findings.evaluation.evaluator:Evaluator._step -> pipelines.findings.evaluation.evaluator:Evaluator._append
pipelines.findings.evaluation.evaluator:Evaluator._append -> pipelines.lake.transactions:append_once = rows of the table
"""

# From a page's address to what the browser draws.
PAGE = """
dashboards.app:main -> dashboards.app:_shown
dashboards.app:_shown -> dashboards.app:_body
dashboards.app:_body -> dashboards.frame:read_address
dashboards.frame:read_address -> dashboards.address:parse = a selection
dashboards.app:_body -> dashboards.scene:open_scene
dashboards.scene:open_scene -> dashboards.clients:SelectedClients.shown = the clients that it selects
dashboards.app:_body -> dashboards.pages:Page.show
dashboards.pages:Page.show -> dashboards.screens.producers:page
dashboards.screens.producers:page -> dashboards.panels:ask_over_time
dashboards.panels:ask_over_time -> dashboards.panels:_ask
dashboards.panels:_ask -> dashboards.scene:Scene.ask
dashboards.scene:Scene.ask -> dashboards.scene:Scene._answer
dashboards.scene:Scene._answer -> dashboards.scene:_windows
dashboards.scene:_windows -> dashboards.answers:answer = an answer, kept
dashboards.scene:_windows -> dashboards.lake:LakeReader.windows
dashboards.lake:LakeReader.windows -> dashboards.kept_windows:KeptWindows.rollups = sums of windows
dashboards.scene:Scene._answer -> dashboards.scene:_answer
dashboards.scene:_answer -> dashboards.lake:LakeReader.ask
dashboards.lake:LakeReader.ask -> dashboards.questions:question = SQL
dashboards.lake:LakeReader.ask -> dashboards.lake:LakeReader.run
dashboards.lake:LakeReader.run -> dashboards.lake:LakeReader._prepare = rows
dashboards.lake:LakeReader._prepare -> pipelines.query.views:needed = views
dashboards.lake:LakeReader._prepare -> dashboards.lake:LakeReader._view
dashboards.lake:LakeReader._view -> pipelines.query.duckdb_tables:native_select = files of tables
dashboards.screens.producers:page -> dashboards.panels:total
dashboards.panels:total -> dashboards.plots:lines
dashboards.plots:lines -> dashboards.plots:_line_spec = a plot in Vega-Lite
dashboards.plots:_line_spec -> dashboards.plot_style:axis_labels = its axis
dashboards.plots:lines -> dashboards.plots:draw = the plot, drawn
dashboards.plots:lines -> dashboards.plots:_foot
dashboards.plots:_foot -> dashboards.plots:table_foot
dashboards.plots:table_foot -> dashboards.show:element = the element below it, drawn
"""


class Place(NamedTuple):
    """A function or class, by its module without the project's prefix, and its name, with its class."""

    module: str
    name: str

    @property
    def file(self) -> str:
        return f"{self.module.replace('.', '/')}.py"


@dataclass(frozen=True)
class Hop:
    """A call on a way; `becomes`: what becomes of what goes it, empty where it goes on as it is."""

    caller: Place
    called: Place
    becomes: str = ""


def way(text: str) -> list[Hop]:
    """The hops of a text, a line each. Raises ``ValueError`` for a line that isn't one."""
    hops = []
    for line in text.strip().splitlines():
        if (match := _HOP.fullmatch(line)) is None:
            raise ValueError(f"not a hop: {line}")
        hops.append(Hop(Place(match[1], match[2]), Place(match[3], match[4]), match[5] or ""))
    return hops


WAYS = {"payload": way(PAYLOAD), "finding": way(FINDING), "page": way(PAGE)}


def entered(hops: list[Hop]) -> dict[str, list[str]]:
    """The files of a way in the order in which it enters them, each with the functions that it enters there."""
    places = dict.fromkeys([hops[0].caller, *(hop.called for hop in hops)])
    files: dict[str, list[str]] = {}
    for place in places:
        files.setdefault(place.file, []).append(place.name)
    return files


def problems(hops: list[Hop], read: Callable[[str], str]) -> Iterator[str]:
    """What is wrong with a way, a line each.

    Args:
        read: returns the source of a file, by its path; raises ``FileNotFoundError``.
    """
    known = {hops[0].caller}
    callers = {hop.caller for hop in hops}
    for hop in hops:
        line = f"{':'.join(hop.caller)} -> {':'.join(hop.called)}"
        if hop.caller not in known:
            yield f"{line}: nothing before it enters {hop.caller.name}"
        if not hop.becomes and hop.called not in callers:
            yield f"{line}: it leads nowhere, and nothing changes its form there"
        known.add(hop.called)
        try:
            if not _calls(hop, read(hop.caller.file), read(hop.called.file)):
                yield f"{line}: {hop.caller.name} doesn't call it"
        except FileNotFoundError as error:
            yield f"{line}: there is no file {error.filename}"
        except LookupError as error:
            yield f"{line}: {error}"


def _calls(hop: Hop, caller_text: str, called_text: str) -> bool:
    """Raises ``LookupError`` if a file doesn't define a place."""
    caller, called = hop.caller, hop.called
    body = _defined(caller, caller_text)
    _defined(called, called_text)
    module, all_texts = _module(caller.file, caller_text)
    imported = module.imported
    dotted = {name.removeprefix(PREFIX) for name in imported.values()}
    knows = caller.module == called.module or any(f"{each}.".startswith(f"{called.module}.") for each in dotted)
    owner, _, method = called.name.rpartition(".")
    nodes = list(ast.walk(body))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    if knows and not owner:
        own = {called.name} if caller.module == called.module else set()
        own |= {local for local, full in imported.items() if full == f"{PREFIX}{called.module}.{called.name}"}
        is_module = f"{PREFIX}{called.module}" in imported.values()
        return bool(names & own) or (is_module and called.name in attributes)
    if knows and method == "__call__":  # named, or called as a value
        values = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        return owner in names or bool(values - imported.keys() - module.defined.keys() - set(dir(builtins)))
    if knows:
        return method in attributes
    # A module that is imported by its name.
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    is_named = called.name in attributes or any(len(text) > 3 and called.name.endswith(text) for text in texts)
    return "import_module" in names and is_named and called.module.rpartition(".")[2] in all_texts


@cache
def _module(file: str, text: str) -> tuple[Module, set[object]]:
    """A file with what it imports, in its functions too; and its literals."""
    module, nodes = Module.of(file, text), list(ast.walk(_tree(text)))
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            module.imported |= module.imports(node)
    return module, {node.value for node in nodes if isinstance(node, ast.Constant)}


@cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def _defined(place: Place, text: str) -> ast.AST:
    nodes: list[ast.AST] = [_tree(text)]
    for part in place.name.split("."):
        nodes = [each for node in nodes for each in getattr(node, "body", ()) if getattr(each, "name", "") == part]
    if not nodes:
        raise LookupError(f"{place.file} doesn't define {place.name}")
    return nodes[0]


@cache
def source(file: str) -> str:
    """The source of a file of the repository. Raises ``FileNotFoundError``."""
    return (ROOT / file).read_text("utf-8")


def main() -> int:
    """Print the ways; 1: some hop isn't true."""
    wrong = 0
    for name, hops in WAYS.items():
        files = entered(hops)
        print(f"{name}: {len(files)} files")
        for number, (file, functions) in enumerate(files.items(), 1):
            print(f"{number:4} {file}: {', '.join(functions)}")
        for problem in problems(hops, source):
            print(f"wrong: {problem}")
            wrong += 1
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
