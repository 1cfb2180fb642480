"""The commands that README and docs print, and the test that runs each.

``python -m tests.support.documented_commands`` writes docs/commands.md.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "commands.md"
PAGES = [
    page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
    if page != PAGE
]
BLOCK = re.compile(r"```(?:sh)?\n(.*?)```|((?:^ {4,}\S.*\n|^\n(?= {4}))+)", re.DOTALL | re.MULTILINE)
PROGRAM = re.compile(
    r"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/)?"
    r"(telemetry-lake|make|pipx|uvx|uv|pip|python|databricks|spark-submit|spark-class|mvn|kafka-[a-z.-]+|export|curl|"
    r"kubectl|docker|systemctl|git) "
)
HERE = "tests/unit/project/test_docs_commands.py::test_it_runs_as_it_is_printed"
SPARK = "tests/spark/test_docs_commands.py::test_ingest_replay_and_views"
KAFKA = "tests/kafka/test_docs_commands.py"


@dataclass(frozen=True)
class Command:
    """A command as a page prints it, in one line."""

    page: str
    text: str

    @property
    def words(self) -> list[str]:
        """Without variables, prompt and the program's folder."""
        words = shlex.split(self.text.removeprefix("$ "), comments=True)
        while re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]
        return [words[0].rpartition("/")[2], *words[1:]]


# The first one that fits holds: the command's beginning, then the test that runs it, or why none does.
TRIED: tuple[tuple[str, str], ...] = (
    (r"telemetry-lake query --lake s3a:", "tests/spark/test_storage_s3.py::test_the_whole_job_and_its_upkeep"),
    (r"telemetry-lake iceberg .*s3a:", "tests/unit/iceberg/test_iceberg_s3.py"),
    (r"telemetry-lake \w+ .*s3a:", "tests/spark/test_storage_s3.py::test_the_whole_job_and_its_upkeep"),
    (r"export AWS_", "tests/spark/test_storage_s3.py::test_the_whole_job_and_its_upkeep"),
    (r"telemetry-lake .*--catalog ", "tests/spark/test_tables_by_name.py::test_captured_pushes_in_a_metastore"),
    (r"telemetry-lake query ", HERE),
    (r"telemetry-lake compare ", "tests/unit/applications/test_before_after_lake.py::test_the_command"),
    (r"telemetry-lake what-if quota ", "tests/unit/quotas/test_quotas_what_if.py::test_the_command"),
    (r"telemetry-lake what-if ", "tests/unit/subscriptions/test_subscriptions_what_if.py::test_the_command"),
    (r"telemetry-lake check-landing .*--bootstrap-servers", "tests/kafka/test_check_landing.py"),
    (r"telemetry-lake check-landing ", "tests/unit/landing/test_check_landing_command.py"),
    (
        r"telemetry-lake sync .*--empty-metrics",
        "tests/unit/subscriptions/test_subscriptions_file.py::"
        "test_an_empty_list_of_metrics_is_none_or_all_as_the_brokers_read_it",
    ),
    (r"telemetry-lake mcp ", "tests/unit/agents/test_mcp_server.py"),
    (r"telemetry-lake quality ", HERE),
    (r"telemetry-lake maintain ", HERE),
    (r"telemetry-lake forget ", HERE),
    (r"telemetry-lake reshard ", "tests/unit/ingest/test_reshard.py::test_the_command"),
    (r"telemetry-lake views\b(?!.*--lake)", HERE),
    (r"telemetry-lake views .*--database", SPARK),
    (
        r"telemetry-lake ingest .*--notify",
        "tests/spark/test_ingest_command.py::"
        "test_follows_a_growing_folder_refuses_a_second_job_and_stops_cleanly_beside_a_sink_that_hangs",
    ),
    (r"telemetry-lake ingest .*--metrics-fleet", "tests/unit/export/test_export_in_job.py"),
    (r"telemetry-lake iceberg ", "tests/unit/iceberg/test_iceberg_command.py"),
    (r"telemetry-lake export .*--otlp", "tests/unit/export/test_export_real_collector.py"),
    (r"telemetry-lake export ", "tests/unit/export/test_export_real_prometheus.py"),
    (r"telemetry-lake notify ", "tests/unit/notify/test_findings_notify_sinks.py"),
    (r"telemetry-lake sync .*--subscriptions-file", HERE),
    (r"telemetry-lake sync .*--aliases-topic", "tests/kafka/test_lifecycle_groups.py::test_aliases_of_a_topic"),
    (
        r"telemetry-lake sync .*--aliases-file",
        "tests/unit/applications/test_application_rules.py::test_sync_keeps_the_history_of_rules",
    ),
    (
        r"telemetry-lake sync .*--prices-file",
        "tests/unit/applications/test_prices.py::test_sync_keeps_the_history_of_prices",
    ),
    (r"telemetry-lake sync .*--check", f"{KAFKA}::test_sync_and_ingest"),
    (r"telemetry-lake sync ", f"{KAFKA}::test_sync_and_ingest"),
    (r"telemetry-lake ingest --conf conf/ingest.yml", f"{KAFKA}::test_sync_and_ingest"),
    (r"telemetry-lake ingest --source files:", SPARK),
    (r"telemetry-lake replay ", SPARK),
    (
        r"telemetry-lake connect ",
        "tests/kafka/test_doctor.py::test_connect_makes_what_is_missing_only_with_consent",
    ),
    (r"telemetry-lake doctor ", "tests/kafka/test_doctor.py::test_a_cluster_whose_clients_push"),
    (r"telemetry-lake dashboard .*--login-file", "tests/dashboard/test_dashboard_oidc.py"),
    (r"telemetry-lake dashboard .*--user-header", "tests/dashboard/test_dashboard_login.py"),
    (r"telemetry-lake dashboard .*--allow-changes", "tests/dashboard/test_dashboard_findings.py"),
    (r"telemetry-lake dashboard ", "tests/dashboard/test_dashboard_command.py"),
    (r"spark-submit --master spark://", f"{KAFKA}::test_spark_submit_on_a_standalone_cluster"),
    (r"spark-class ", f"{KAFKA}::test_spark_submit_on_a_standalone_cluster"),
    (r"spark-submit .*--source files:", f"{KAFKA}::test_spark_submit_from_files"),
    (r"spark-submit .*--source kafka", f"{KAFKA}::test_spark_submit_from_kafka"),
    (r"spark-submit --master (yarn|k8s)", "no YARN or Kubernetes at hand; the page says so"),
    (r"databricks bundle init", "no CLI at hand; tests/unit/project/test_bundle_template.py renders the template"),
    (r"databricks ", "no workspace at hand; tests/unit/project/test_bundle.py resolves what the bundle names"),
    (r"kafka-[a-z-]+\.sh ", f"{KAFKA}::test_the_steps_of_the_plugins_install"),
    (r"kafka-acls ", "tests/kafka/test_safety_kafka.py sets rights by the same tool's class"),
    (r"telemetry-lake completion ", "tests/unit/jobs/test_completion.py"),
    (
        r"(docker|kubectl|systemctl|useradd) ",
        "nothing here to run it; tests/unit/project/test_deploy.py checks the files",
    ),
    (r"python3? -m venv", "make install does the same"),
    (r"(pipx|uv|pip|uvx) .*\.whl", "tests/unit/project/test_bundle_wheel.py::test_pipx_and_uvx_install_it"),
    (r"make dist", "by hand before a release; test_bundle_wheel.py and test_release_jar.py build the same"),
    (r"make test-matrix\b", "by hand before a release; test_matrix.py tests what it chooses"),
    (r"make test-slow\b", "CI runs those that a change touches, and all in eight runs: .ci/run"),
    (r"make (test|lint|test-\S+)\b", "CI runs it: .ci/run"),
    (r"make demo-proxy\b", "tests/kafka/test_demo.py::test_the_same_by_a_proxy, the same command"),
    (r"make (demo|demo-files)\b", "tests/kafka/test_readme.py::test_readme_from_the_beginning; demo-files by hand"),
    (
        r"(make |python -m kafka_telemetry_lake\.sandbox\.)conformance\b",
        "tests/kafka/test_conformance.py makes cards in the same way",
    ),
    (
        r"make (bench|soak|lock|clean)\b",
        "takes long, or changes what is installed; tests/unit/project/test_docs.py looks that it is there",
    ),
    (r"make ", "tests/unit/project/test_docs.py looks that it is there"),
    (r"mvn ", "CI builds the plugin by the same lines: make test-receiver"),
    (
        r"pip install ('kafka-telemetry-lake\[|--upgrade)",
        "not on an index yet; tests/unit/project/test_bundle_wheel.py installs the wheel",
    ),
    (
        r"telemetry-lake findings --list",
        "tests/unit/findings/test_finding_rules.py::test_the_list_for_people_and_for_scripts",
    ),
    (
        r"telemetry-lake findings .*--acknowledge",
        "tests/unit/findings/test_findings_states_lake.py::test_acknowledged_until_it_is_resolved",
    ),
    (
        r"telemetry-lake findings .*--(un)?mute",
        "tests/unit/findings/test_findings_states_lake.py::test_muted_until_a_time_also_over_an_end",
    ),
    (r"telemetry-lake findings ", HERE),
    (
        r"python -m tools.findings_docs",
        "tests/unit/findings/test_finding_rules.py::test_the_page_is_that_of_the_rules",
    ),
    (
        r"python -m tools.schema_docs",
        "tests/unit/project/test_docs.py::test_the_schema_is_that_of_the_tables",
    ),
    (
        r"python -m tests.unit.readers.asked ",
        "tests/unit/readers/test_readers.py; chdb, DuckDB's extension and Trino by hand",
    ),
    (r"python -m ", "takes long: part of make bench"),
)


def commands() -> Iterator[Command]:
    """Of all pages, in the order of their printing."""
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text("utf-8")):
            text = next(part for part in block.groups() if part).replace("\\\n", " ")
            waiting = ""
            for line in text.splitlines():
                waiting = f"{waiting} {line.strip()}" if waiting else line.strip()
                if not PROGRAM.match(f"{waiting} "):
                    waiting = ""
                    continue
                try:
                    shlex.split(waiting, comments=True)
                except ValueError:  # a query that goes on in the next line
                    continue
                yield Command(page.name, re.sub(r"\s+", " ", waiting))
                waiting = ""


def tried(command: Command) -> str:
    """The test that runs it, or the reason why none does. Raises ``KeyError`` for a command that nothing fits."""
    text = shlex.join(command.words)
    for beginning, by in TRIED:
        if re.match(beginning, text):
            return by
    raise KeyError(f"{command.page}: {command.text}")


def page() -> str:
    """docs/commands.md."""
    rows = []
    for command in commands():
        by = tried(command)
        text = command.text if len(command.text) <= 110 else command.text[:109] + "…"
        rows.append(f"| {command.page} | `{text.replace('|', chr(92) + '|')}` | {by} |")
    return (
        "# Which test runs each printed command?\n\n"
        "Each command that README and docs print, and the test that runs it, with another\n"
        "lake or port where it needs one, or why none does. "
        "Written by `python -m tests.support.documented_commands`.\n\n"
        "| page | command | tried by |\n|---|---|---|\n" + "\n".join(dict.fromkeys(rows)) + "\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
