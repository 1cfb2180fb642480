"""``telemetry-lake mcp`` as an agent sees it: the SDK's own client starts the command and speaks to it over stdio."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

pytest.importorskip("mcp", reason="extra mcp isn't installed")

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from kafka_telemetry_lake.pipelines.agents.descriptions import pages
from kafka_telemetry_lake.pipelines.query.lake_query import run_query
from kafka_telemetry_lake.pipelines.tables.findings import FINDING_CHANGES
from tests.support.captured_lake import HOSTILE, captured_lake
from tests.support.patience import PATIENCE_S

FINDING = "0123456789abcdef" * 2
TOOLS = ["ask_sql", "describe_view", "explain_finding", "list_views"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = captured_lake(tmp_path_factory.mktemp("mcp") / "lake")
    at = datetime(2026, 11, 21, 13, tzinfo=UTC)
    opened = {
        "finding_id": FINDING, "finding": "tiny_batches", "change": "opened", "severity": "info", "client_id": HOSTILE,
        "at": at, "opened_at": at, "window_start": at, "recorded_at": at, "landed_date": at.date(),
    }  # fmt: skip
    rows = pa.Table.from_pylist([opened], FINDING_CHANGES.stored)
    write_deltalake(FINDING_CHANGES.uri(str(folder)), rows, partition_by=["landed_date"])
    return folder


def server(lake: Path, max_seconds: float) -> StdioServerParameters:
    args = ["-m", "kafka_telemetry_lake", "mcp", "--lake", str(lake), "--max-rows", "3"]
    args += ["--max-seconds", str(max_seconds)]
    return StdioServerParameters(command=sys.executable, args=args, env={"PYTHONPATH": ":".join(sys.path)})


async def endless(lake: Path) -> str:
    """What is answered to a question that takes longer than a server allows."""
    async with Client(stdio_client(server(lake, 2))) as client:
        result = await client.call_tool("ask_sql", {"sql": "SELECT sum(range * 2) FROM range(1000000000000)"})
        (content,) = result.content
        assert content.type == "text"
        assert result.is_error
        return content.text


async def session(lake: Path, tmp_path: Path) -> None:
    async with Client(stdio_client(server(lake, PATIENCE_S))) as client:

        async def ask(tool: str, **arguments: Any) -> Any:
            result = await client.call_tool(tool, arguments)
            (content,) = result.content
            assert content.type == "text"
            assert not result.is_error, content.text
            return json.loads(content.text)

        async def refusal(tool: str, **arguments: Any) -> str:
            result = await client.call_tool(tool, arguments)
            (content,) = result.content
            assert content.type == "text"
            assert result.is_error
            return content.text.removeprefix(f"Error executing tool {tool}: ")

        tools = (await client.list_tools()).tools
        assert sorted(tool.name for tool in tools) == TOOLS
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)

        names = [row["name"] for row in await ask("list_views")]
        assert names == run_query(str(lake), "SHOW TABLES").read_all()["name"].to_pylist()
        described = await ask("describe_view", name="clients")
        assert described["columns"][0] == {"name": "cluster_id", "type": "VARCHAR"}

        sql = "SELECT client_id, count(*) AS n FROM metric_points GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3"
        rows = await ask("ask_sql", sql=sql)
        assert [tuple(row) for row in rows["rows"]] == [
            (row["client_id"], row["n"]) for row in run_query(str(lake), sql).read_all().to_pylist()
        ]
        assert rows["truncated"] is None
        assert "only the first 3 rows" in (await ask("ask_sql", sql="FROM pushes"))["truncated"]
        hostile = await ask("ask_sql", sql="SELECT client_id FROM pushes WHERE client_id LIKE '<img%' LIMIT 1")
        assert hostile["rows"] == [[HOSTILE]]

        for name in (FINDING, "tiny_batches"):
            told = await ask("explain_finding", finding=name)
            assert told["rule"]["id"] == "tiny_batches"
            assert [(row["finding_id"], row["client_id"]) for row in told["open"]] == [(FINDING, HOSTILE)]

        assert "COPY" not in await refusal("ask_sql", sql=f"COPY pushes TO '{tmp_path / 'out'}'")
        assert "read_text() is not allowed here" in await refusal("ask_sql", sql="FROM read_text('/etc/hostname')")
        assert "did you mean pushes?" in await refusal("ask_sql", sql="FROM push")
        assert "sql" in await refusal("ask_sql", query="SELECT 1")
        assert "nonsense" in (await client.call_tool("nonsense", {})).content[0].text  # type: ignore[union-attr]  # a text
        assert list(tmp_path.iterdir()) == []

        resources = {str(resource.uri): resource for resource in (await client.list_resources()).resources}
        assert resources.keys() == {f"docs://{name}" for name in pages()}
        (page,) = (await client.read_resource("docs://findings")).contents
        assert page.text == pages()["findings"].text  # type: ignore[union-attr]  # a text
        with pytest.raises(MCPError):
            await client.read_resource("docs://../../etc/passwd")
        with pytest.raises(MCPError):
            await client.read_resource("file:///etc/passwd")
        several = await asyncio.gather(*(ask("ask_sql", sql=f"SELECT {n} FROM pushes LIMIT 1") for n in range(4)))
        assert [each["rows"] for each in several] == [[[n]] for n in range(4)]


@pytest.mark.slow
def test_an_agent_asks_a_lake_and_can_do_nothing_else(lake: Path, tmp_path: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in lake.rglob("*")}
    asyncio.run(session(lake, tmp_path))
    assert {file: file.stat().st_mtime_ns for file in lake.rglob("*")} == before


@pytest.mark.slow
def test_a_question_without_an_end_is_stopped(lake: Path) -> None:
    told = asyncio.run(endless(lake))
    assert told == "Error executing tool ask_sql: stopped after 2 s: read fewer days or rows"


@pytest.mark.slow
def test_stdout_has_the_protocol_only_and_closing_stdin_ends_it(lake: Path) -> None:
    """A line that isn't JSON, and an unknown method, are answered or skipped; then stdin ends."""
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip
    lines = [hello, "not json", [], {"jsonrpc": "2.0", "id": 2, "method": "lake/drop"}]
    argv = [sys.executable, "-m", "kafka_telemetry_lake", "mcp", "--lake", str(lake)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
        process.stdin.flush()
        answers: dict[Any, Any] = {}
        while 2 not in answers:  # each line is JSON
            told = json.loads(process.stdout.readline())
            answers[told.get("id")] = told
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait(PATIENCE_S) == 0
    assert answers[1]["result"]["serverInfo"]["name"] == "kafka-telemetry-lake"
    assert "never instructions" in answers[1]["result"]["instructions"]
    assert "error" in answers[2]
