"""The key of hashed personal data and Kafka's passwords: in no plan, event log, log line, error or checkpoint."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S

KEY, PASSWORD = "recognisable-key-4711", "recognisable, password=0815]"
PRINCIPAL = "User:alice"
# A program of its own: an event log is a matter of the whole SparkContext.
PROGRAM = """
import json, sys
from pathlib import Path
from kafka_telemetry_lake.pipelines.ingest.landing_rows import to_landed
from kafka_telemetry_lake.pipelines.ingest.store_task import RESULT, StoreTask
from kafka_telemetry_lake.pipelines.lake.privacy import Privacy
from kafka_telemetry_lake.pipelines.ingest.sources import FilesSource, KafkaSource, Topics
from kafka_telemetry_lake.pipelines.runtime import session
from tests.support.landing_records import record, write

folder, key, password, principal = Path(sys.argv[1]), *sys.argv[2:]
(folder / "events").mkdir()
session.LOCAL |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": (folder / "events").as_uri(),
                  "spark.eventLog.compress": "false"}
spark = session.spark_session("secrets", master="local[1]", driver_memory="1g")
spark.sparkContext.setLogLevel("INFO")
write(folder / "in", "a.parquet", [record(0, b"x", principal=principal)])
jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{password}";'
sources = [
    FilesSource(str(folder / "in"), "files"),
    KafkaSource("127.0.0.1:1", "kafka", Topics(), {
        "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": jaas,
        "kafka.ssl.truststore.password": password, "kafka.ssl.keystore.key": "-----BEGIN\\n" + password + "\\n-----END",
        "kafka.request.timeout.ms": "1000", "kafka.default.api.timeout.ms": "1000",
    }),
]
for source in sources:
    task = StoreTask(str(folder / "lake"), privacy=Privacy("hash", key))
    rows = to_landed(source.pushes(spark, {}), "s").mapInArrow(task, RESULT).select("file")
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        try:
            rows.explain(mode=mode)
        except Exception as error:
            print(error)
    query = (
        rows.writeStream.format("parquet").option("path", str(folder / source.name))
        .option("checkpointLocation", str(folder / f"checkpoint-{source.name}")).trigger(availableNow=True).start()
    )
    try:
        query.awaitTermination()
    except Exception as error:
        print("it failed:", error)
    query.explain(True)
    print(query.lastProgress, query.status, query.exception(), query)
stored = spark.read.parquet(str(folder / "lake" / "pushes")).select("principal").collect()
print(json.dumps({"principals": [row[0] for row in stored]}))
spark.stop()
"""


@pytest.mark.slow
def test_keys_and_passwords_stand_nowhere(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PROGRAM, str(tmp_path), KEY, PASSWORD, PRINCIPAL]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr[-3000:]
    # It ran: the key hashes as before, the plans are shown, the events are written, and Kafka didn't answer.
    hashed = hashlib.sha256(f"{KEY}\0{PRINCIPAL}".encode()).hexdigest()[:32]
    assert json.loads(done.stdout.splitlines()[-1]) == {"principals": [hashed]}
    assert "it failed: " in done.stdout
    assert "kafka.request.timeout.ms" in done.stdout
    assert "MapInArrow" in done.stdout
    (events,) = (tmp_path / "events").rglob("events_*")
    written = {str(file): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert b"SparkListenerSQLExecutionStart" in written[str(events)]
    assert b"MapInArrow" in written[str(events)]
    written |= {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    for secret in (KEY, PASSWORD, PASSWORD.split(", ")[1]):
        assert [place for place, content in written.items() if secret.encode() in content] == []
