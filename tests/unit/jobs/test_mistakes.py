"""Mistakes of a user: each ends with its exit code and one line on stderr, within seconds and before Spark starts."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka_telemetry_lake.jobs import cli
from kafka_telemetry_lake.jobs.cli import COMMANDS, job_of
from kafka_telemetry_lake.pipelines.tables.operator import PUSHES, TABLES
from tests.support.listeners import listening
from tests.support.patience import idle_clock

pytestmark = pytest.mark.lake  # it starts commands

KAFKA = "ingest --source kafka --lake new --bootstrap-servers"
SYNC = "sync --lake new --bootstrap-servers"
NOTIFY = "ingest --source kafka --lake new --bootstrap-servers 127.0.0.1:1 --findings-minutes 5 --notify"
NAMED = "ingest --source files:. --checkpoints new --catalog"
ID = "0123456789abcdef" * 2

# Command line, exit code, what the line says, most CPU seconds. {...} are names of `place`, | is a space in a value.
MISTAKES: list[tuple[str, int, str, float]] = [
    # commands and flags
    ("nonsense", 2, "unknown command 'nonsense'; the commands are: demo, connect, doctor, ingest,", 1),
    ("ingets --lake x", 2, "unknown command 'ingets'; did you mean ingest", 1),
    ("help ingets", 2, "unknown command 'ingets'; did you mean ingest", 1),
    ("ingest --lake new --sorce kafka", 2, "unrecognized arguments: --sorce; did you mean --source", 1),
    ("query --lak {lake} SELECT|secret|FROM|x", 2, "unrecognized arguments: --lak; did you mean --lake?", 1),
    ("query --lake {lake} SELECT * FROM pushes", 2, "put a text with spaces in quotes", 1),
    ("query --lake", 2, "argument --lake: expected one argument", 1),
    ("demo --lake new --files --proxy", 2, "proxy: not together with --files, which starts no broker", 1),
    ("completion tcsh", 2, "shell: Input should be 'bash', 'zsh' or 'fish'", 1),
    ("dashboard", 2, "lake: required; set --lake or TELEMETRY_LAKE_LAKE", 1),
    ("query --lake {lake} --format xml FROM|pushes", 2, "format: Input should be 'table'", 1),
    ("ingest --lake new --source s3:x", 2, "allowed: files:<folder> or kafka, got 's3:x'", 1),
    ("ingest --lake new --source kafka --starting-offsets soon", 2, "earliest, latest, or a time", 1),
    ("ingest --lake new --source files:x --shards 0", 2, "shards: Input should be greater than 0", 1),
    # tables by name
    ("ingest --source files:. --catalog main", 2, "catalog: needs the schema of the lake's tables; add --schema", 1),
    ("ingest --source files:. --schema telemetry", 2, "schema: works only with --catalog", 1),
    ("ingest --source files:.", 2, "lake: required; set --lake or TELEMETRY_LAKE_LAKE", 1),
    ("ingest --source files:. --catalog main --schema t --lake new", 2, "catalog: not together with --lake", 1),
    ("ingest --source files:. --catalog main --schema t", 2, "catalog: needs --checkpoints: a folder or URI for", 1),
    (f"{NAMED} main.t --schema t", 2, "catalog: Value error, allowed: letters, digits, _ and -", 1),
    (f"{NAMED} main --schema a`b", 2, "schema: Value error, allowed: letters, digits, _ and -", 1),
    (f"{NAMED} main --schema t --findings-minutes 5", 2, "findings_minutes: reads tables by path", 1),
    (f"{NAMED} main --schema t --take-over", 2, "take_over: Spark's commits can't be fenced", 1),
    (f"{NAMED} main --schema t --new-topic", 2, "leave out --new-topic and write to a new schema", 1),
    (f"{NAMED.replace('files:.', 'files:/no/such')} main --schema t", 2, "/no/such does not exist", 6),
    (f"{NAMED.replace('new', '{file}')} main --schema t", 2, "can't write to ", 6),
    ("maintain --catalog main --schema t", 2, "catalog: needs --checkpoints: a folder or URI for state, notes and", 1),
    ("quality --catalog main --schema t", 2, "catalog: this command reads and writes tables by path, in a folder", 1),
    ("query --catalog main --schema t FROM|pushes", 2, "a catalog's tables are asked by SQL in its own engine", 1),
    ("dashboard --catalog main --schema t", 2, "a catalog's tables are asked by SQL in its own engine", 1),
    ("ingest --lake new --source kafka", 2, "bootstrap_servers: required with --source kafka", 1),
    ("ingest --lake new --source files:/no/such", 2, "source folder /no/such does not exist", 6),
    ("maintain --lake {lake} --retention-days metric_points", 2, "retention_days: allowed: NAME=VALUE", 1),
    ("maintain --lake {lake} --retention-days metric_points=x", 2, "retention_days.metric_points: Input should be", 1),
    ("maintain --lake {lake} --retention-days metric_point=3", 2, "did you mean metric_points", 6),
    ("sync --lake new", 2, "set exactly one of --bootstrap-servers, --subscriptions-file", 1),
    ("connect --lake new", 2, "bootstrap_servers: required; set --bootstrap-servers", 1),
    ("connect --lake new --bootstrap-servers 127.0.0.1:1", 2, "127.0.0.1:1: connection refused", 6),
    ("doctor", 2, "name at least one: --bootstrap-servers host:port, --lake DIR", 1),
    # --conf
    ("ingest --conf /no.yml", 2, "--conf: no such file: /no.yml", 1),
    ("ingest --conf {broken}", 2, "is not YAML: while parsing a flow sequence", 1),
    ("ingest --conf {list}", 2, "can't be read as a list of `setting: value`", 1),
    ("ingest --conf {binary}", 2, "is not YAML", 1),
    ("ingest --conf {typo}", 2, "sourse: unknown setting; did you mean source?", 1),
    # the lake
    ("query --lake {lake} --at-moment 0 FROM|pushes", 2, "at_moment: Input should be greater than or equal to 1", 1),
    ("query --lake {lake} --at-moment 7 FROM|pushes", 1, "has no moment 7: it has none", 2),
    ("query --lake {file} FROM|pushes", 2, "a.txt is a file; name a folder", 1),
    ("ingest --source files:. --lake {file}", 2, "a.txt is a file; name a folder", 1),
    ("query --lake new FROM|pushes", 1, "no lake at new: create one with `telemetry-lake ingest", 2),
    ("query --lake new SHOW|TABLES", 1, "no lake at new", 2),
    ("dashboard --lake new", 2, "no lake at new: create one with `telemetry-lake demo`", 6),
    ("maintain --lake new", 2, "no lake at new", 6),
    ("replay --lake new --from earliest", 2, "no lake at new", 6),
    ("reshard --lake new --shards 8", 2, "no lake at new", 6),
    ("reshard --lake {lake} --shards 0", 2, "shards: Input should be greater than or equal to 1", 1),
    ("reshard --lake {lake} --shards 10001", 2, "shards: Input should be less than or equal to 10000", 1),
    ("reshard --lake {lake}", 2, "shards: required; set --shards or TELEMETRY_LAKE_SHARDS", 1),
    ("forget --lake new --principal User:a", 2, "no lake at new", 6),
    ("forget --lake {lake}", 2, "name one of them: --client-instance ID or --principal NAME", 1),
    ("forget --lake {lake} --client-instance xyz", 2, "allowed: a client instance id as the tables have it", 1),
    # Kafka
    (f"{KAFKA} 127.0.0.1:1", 2, "127.0.0.1:1: connection refused, nothing listens there; check --bootstrap-servers", 6),
    (f"{SYNC} 127.0.0.1:1", 2, "127.0.0.1:1: connection refused", 6),
    (f"{KAFKA} no-such-host.invalid:9092", 2, "no-such-host.invalid:9092: unknown host", 6),
    (f"{KAFKA} localhost", 2, "bootstrap_servers: localhost is not host:port", 6),
    (f"{KAFKA} 127.0.0.1:{{silent}}", 2, "no answer within 3 s", 6),
    (f"{KAFKA} 127.0.0.1:{{http}}", 2, "it answers, but it is not Kafka", 6),
    (f"{KAFKA} 127.0.0.1:{{closing}}", 2, "it closed the connection, as a listener with TLS does", 6),
    (f"{KAFKA} 127.0.0.1:{{closing}} --kafka-options kafka.security.protocol=SSL", 2, "it does not speak TLS", 6),
    (f"{KAFKA} a:1 --kafka-options kafka.security.protocol=TLS", 2, "allowed: PLAINTEXT, SSL, SASL_PLAINTEXT", 6),
    (f"{KAFKA} a:1 --kafka-options sasl.mechanism=PLAIN", 2, "sasl.mechanism would be ignored", 1),
    (f"{SYNC} a:1 --kafka-options sasl.jaas.config=hunter2", 2, "begin with kafka., such as kafka.sasl.jaas", 1),
    (f"{KAFKA} a:1 --kafka-options startingOffsets=latest", 2, "set --starting-offsets", 1),
    (f"{KAFKA} a:1 --kafka-options kafka.sasl.mechanism", 2, "kafka_options: allowed: NAME=VALUE", 1),
    # iceberg
    ("iceberg", 2, "lake: required; set --lake or TELEMETRY_LAKE_LAKE", 1),
    ("iceberg --lake {lake} --refresh-seconds 5", 2, "refresh_seconds: needs --follow", 1),
    ("iceberg --lake {lake} --keep-snapshots 0", 2, "keep_snapshots: Input should be greater than or equal to 1", 1),
    # export
    ("export", 2, "lake: required; set --lake or TELEMETRY_LAKE_LAKE", 1),
    ("export --lake new", 2, "no lake at new: create one with `telemetry-lake ingest", 6),
    ("export --lake {lake} --by client,topics", 2, "allowed: client, application, topic, software, instance", 1),
    ("export --lake {lake} --top 0", 2, "top: Input should be greater than or equal to 1", 1),
    ("export --lake {lake} --name A/b", 2, "name: String should match pattern", 1),
    ("export --lake {lake} --port {http}", 2, "port: can't listen on 127.0.0.1:", 8),
    ("export --lake {lake} --otlp ftp://x", 2, "otlp: Value error, allowed: a URL that begins with http://", 1),
    ("export --lake {lake} --otlp http://h/a/v1/metrics/?b", 2, "leave /v1/metrics out: the path of each signal", 1),
    ("export --lake {lake} --otlp http:///v1", 2, "begins with http:// or https:// and names a host", 1),
    ("export --lake {lake} --otlp-signals traces", 2, "allowed: metrics, logs, or both with a comma in between", 1),
    ("export --lake {lake} --otlp-headers a=hunter2", 2, "otlp_headers: needs --otlp URL", 1),
    ("ingest --lake new --source files:. --metrics-fleet", 2, "metrics_fleet: needs --metrics-port, and a job that", 1),
    # files
    ("notify --lake {lake}", 2, "notify: required; set --notify or TELEMETRY_LAKE_NOTIFY", 1),
    ("notify --lake {lake} --notify /no.yml", 2, "/no.yml: No such file", 6),
    ("notify --lake {lake} --notify {broken}", 2, "broken.yml: not YAML: line 2, column 1", 6),
    ("notify --lake {lake} --notify {list}", 2, "list.yml: the file: Input should be a valid dictionary", 6),
    ("notify --lake {lake} --notify x.yml --follow --dry-run", 2, "dry_run, follow: set one of both", 1),
    ("ingest --lake new --source files:. --notify x.yml", 2, "notify: needs findings, which nothing evaluates; add", 1),
    (f"{NOTIFY} {{broken}}", 2, "broken.yml: not YAML: line 2, column 1", 6),
    ("sync --lake new --subscriptions-file {broken} --cluster-id c", 2, "not YAML", 6),
    ("sync --lake new --subscriptions-file /no.yml --cluster-id c", 2, "/no.yml: No such file", 6),
    ("query --lake {lake} --file /no.sql", 2, "file: /no.sql: No such file or directory", 2),
    ("query --lake {lake} --file {binary}", 2, "is not text in UTF-8", 2),
    ("query --lake {lake} --file {file} FROM|pushes", 2, "give the query as an argument or by --file, not both", 1),
    # findings
    ("findings", 2, "lake: required; set --lake or TELEMETRY_LAKE_LAKE; only --list works without", 1),
    ("findings --list --lake {lake}", 2, "list: works alone, or with --format", 1),
    ("findings --lake new", 2, "no lake at new: create one with `telemetry-lake ingest", 6),
    ("findings --lake {lake} --acknowledge orders --by a --why b", 2, "acknowledge: String should match pattern", 1),
    (f"findings --lake {{lake}} --acknowledge {ID} --why b", 2, "by: required with --acknowledge", 1),
    (f"findings --lake {{lake}} --acknowledge {ID} --by a", 2, "why: required with --acknowledge", 1),
    (f"findings --lake {{lake}} --acknowledge {ID} --by | --why b", 2, "by: Value error, allowed: 1 to 1,000 char", 1),
    (f"findings --lake {{lake}} --acknowledge {ID} --by a --why b", 2, f"no finding has the id {ID}: `tele", 6),
    (f"findings --lake {{lake}} --mute {ID} --by a --why b", 2, "until: required with --mute", 1),
    (f"findings --lake {{lake}} --mute {ID} --by a --why b --until 5", 2, "allowed: a time such as 2026-11-30", 1),
    (f"findings --lake {{lake}} --mute {ID} --by a --why b --until 9999-12-31T23-01", 2, "allowed: a time such as", 1),
    (f"findings --lake {{lake}} --mute {ID} --by a --why b --until 2020-01-01", 2, "until: 2020-01-01 00:00 UTC is", 6),
    (f"findings --lake {{lake}} --unmute {ID} --by a --mute {ID}", 2, "unmute: not together with --mute", 1),
    ("findings --lake {lake} --by a", 2, "by: works only with --acknowledge, --mute or --unmute", 1),
    ("findings --lake {lake} --until 2999-01-01", 2, "until: works only with --mute", 1),
    # landing records of others
    ("check-landing", 2, "the following arguments are required: TARGET", 1),
    ("check-landing /no/such", 2, "/no/such does not exist; to check a topic, add --bootstrap-servers", 6),
    ("check-landing t --bootstrap-servers 127.0.0.1:1", 2, "127.0.0.1:1: connection refused", 6),
    ("check-landing t --kafka-options kafka.a=b", 2, "kafka_options: works only with --bootstrap-servers", 1),
    ("check-landing t --max-records 0", 2, "max_records: Input should be greater than or equal to 1", 1),
    ("sync --lake new --subscriptions-file x --empty-metrics some", 2, "empty_metrics: Input should be 'none' or", 1),
    # a proposed quota
    ("what-if", 2, "the following arguments are required: WHAT", 1),
    ("what-if quota --lake {lake}", 2, "for whom? --user, --user-defaults, --client-id or --client-defaults", 1),
    ("what-if subscription --lake {lake}", 2, "which subscription? set exactly one of both", 1),
    ("what-if subscription --lake {lake} --name a", 2, "metrics, interval_ms, match: what would change?", 1),
    ("what-if subscription --lake {lake} --name a --match b", 2, "match: allowed: NAME=VALUE", 1),
    ("what-if subscription --lake {lake} --name a --interval-ms 5 --fetch 1", 2, "fetch: works only with what-if q", 1),
    ("what-if subscription --lake {lake} --name a --metrics b", 2, "no subscription is recorded, so nobody knows", 6),
    ("what-if subscription --lake {lake} --subscriptions-file {broken}", 2, "not YAML", 6),
    ("what-if quota --lake {lake} --client-id a --fetch 1 --name b", 2, "name: works only with what-if subscri", 1),
    # an application before and after a moment
    ("compare --lake {lake} --at 2026-11-30", 2, "application: required; set --application", 1),
    ("compare --lake {lake} --application a --at noon", 2, "at: Value error, allowed: a time such as 2026-11-30T", 1),
    ("compare --lake {lake} --application a --at 2026-11-30 --window 2h", 2, "window: Input should be '15m', '1h'", 1),
    ("compare --lake {lake} --application a --at 2026-11-30", 2, "application: no client belongs to 'a'; telemetry", 6),
    ("compare --lake new --application a --at 2026-11-30", 2, "no lake at new: create one with", 6),
    # agents
    ("mcp", 2, "lake: required; set --lake or TELEMETRY_LAKE_LAKE", 1),
    ("mcp --lake new", 2, "no lake at new: create one with `telemetry-lake ingest", 6),
    ("mcp --lake {lake} --max-rows 0", 2, "max_rows: Input should be greater than or equal to 1", 1),
    # SQL
    ("query --lake {lake} SELEC|1", 1, 'syntax error at or near "SELEC"', 2),
    ("query --lake {lake} SELECT|*|FROM|fidings", 1, "no table or view is called fidings; did you mean findings or", 4),
    ("query --lake {lake} SELECT|clientid|FROM|pushes", 1, "no column is called clientid; did you mean client_id", 2),
    ("query --lake {lake} SELECT|sum(client_id)|FROM|pushes", 1, "No function matches", 2),
    ("query --lake {lake} SELECT|*|FROM|pushes|WHERE|landed_at>5", 1, "Cannot compare values of type", 2),
    ("query --lake {lake} SELECT|1;|SELECT|2", 1, "one query at a time: got 2 statements", 2),
    ("query --lake {lake} DELETE|FROM|pushes", 1, "DELETE is not a query", 2),
    ("query --lake {lake} FROM|'/etc/hostname'", 1, "--allow-files", 2),
]  # fmt: skip


def http(connection: socket.socket) -> None:
    connection.recv(100)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A lake, files and ports to make mistakes with."""
    folder = tmp_path_factory.mktemp("mistakes")
    contents = {
        "file": ("a.txt", b"text"),
        "broken": ("broken.yml", b"lake: [new\n"),
        "list": ("list.yml", b"- lake\n- source\n"),
        "binary": ("binary.yml", b"\x80\x81\xff"),
        "typo": ("typo.yml", b"lake: new\nsource: kafka\nbootstrap_servers: a:1\nsourse: kafka\n"),
    }
    for name, content in contents.values():
        (folder / name).write_bytes(content)
    for table in TABLES:
        table.create(str(folder / "lake"))
    one = pa.Table.from_pylist([{"client_id": "orders"}], PUSHES.stored)
    write_deltalake(PUSHES.uri(str(folder / "lake")), one, mode="append")
    for command in COMMANDS:  # Python's imports are not what is measured
        job_of(command)
    with listening(lambda _: None) as silent, listening(http) as web, listening(socket.socket.close) as closing:
        places = {key: str(folder / name) for key, (name, _) in contents.items()}
        ports = {"silent": str(silent), "http": str(web), "closing": str(closing)}
        yield places | ports | {"lake": str(folder / "lake")}


def words(line: str, place: dict[str, str]) -> list[str]:
    return [word.replace("|", " ") for word in line.format(**place).split(" ")]


@pytest.mark.parametrize(("line", "code", "said", "seconds"), MISTAKES, ids=[line for line, *_ in MISTAKES])
def test_a_mistake_is_one_line_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: dict[str, str],
    line: str, code: int, said: str, seconds: float,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    began = time.process_time()
    with idle_clock() as clock:
        found = cli.main(words(line, place))
    worked = time.process_time() - began
    out, err = capsys.readouterr()
    assert (found, len(err.splitlines())) == (code, 1), err
    assert err.startswith("telemetry-lake: ")
    assert said in err
    assert "hunter2" not in err
    assert "secret" not in err
    assert out == ""
    assert len(err) < 500
    assert worked < seconds
    assert clock.seconds < 3 + 10 * seconds  # waits of 3 s
    assert list(tmp_path.iterdir()) == []


def test_there_are_forty_mistakes_of_every_command() -> None:
    assert len(MISTAKES) >= 40
    assert {line.split()[0] for line, *_ in MISTAKES} >= COMMANDS.keys() - {"demo", "views"}


@pytest.mark.parametrize(
    "line",
    ["query --lake {lake} SELEC|1", "query --lake {lake} SELECT|x|FROM|findings", "query --lake {file} FROM|pushes",
     "ingest --conf {broken}", "query --lake {lake} SELECT|CAST(client_id|AS|INT)|FROM|pushes"],
)  # fmt: skip
@pytest.mark.slow
def test_nothing_else_is_printed_by_the_whole_process(place: dict[str, str], line: str) -> None:
    """Libraries have their say when a process ends."""
    argv = [sys.executable, "-m", "kafka_telemetry_lake", *words(line, place)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("telemetry-lake: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["query", "quality", "maintain"])
def test_a_lake_that_this_user_may_not_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    (tmp_path / "lake").mkdir(mode=0o700)
    tmp_path.chmod(0o711)
    monkeypatch.setattr("os.access", lambda *_: False)  # as for a user without the right
    argv = [command, "--lake", str(tmp_path / "lake"), *(["FROM pushes"] if command == "query" else [])]
    assert cli.main(argv) == 2
    assert "lake can't be read by this user: give it the right to" in capsys.readouterr().err


def test_what_a_store_or_the_system_refuses_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: dict[str, str]
) -> None:
    def refused(_: object) -> int:
        raise PermissionError(13, "Permission denied", "lake/pushes/_delta_log")

    def unknown(_: str) -> None:
        raise pa.ArrowException("Unknown error: no token\nsee the manual")

    monkeypatch.setattr("kafka_telemetry_lake.jobs.cli.job_of", lambda _: refused)
    assert cli.main(["quality", "--lake", place["lake"]]) == 2
    assert "quality: lake/pushes/_delta_log: this user may not access it" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.query.lake_query.filesystem_of", unknown)
    monkeypatch.setattr("kafka_telemetry_lake.pipelines.lake.place.check_store", lambda _: None)
    assert cli.main(["query", "--lake", "s3://b/lake", "FROM pushes"]) == 1
    assert capsys.readouterr().err == (
        "telemetry-lake: s3://b/lake can't be read: Unknown error: no token see the manual\n"
    )


def test_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["help", "query"])
    assert end.value.code == 0
    assert "usage: telemetry-lake query" in capsys.readouterr().out
    assert cli.main(["help"]) == 0
    assert "telemetry-lake help COMMAND" in capsys.readouterr().out
