#!/bin/bash
# Kafka's Java client and broker refuse the LZ4 frames that Python's libraries write by default: some at any size, some over 64 KB.
#
# Version: kafka-clients 4.4.0, lz4-java 1.10.1; lz4 4.4.5, cramjam 2.14.0, aiokafka 0.14.0, kafka-python 3.0.12
# Behaviour: Kafka's reader of LZ4 frames knows independent blocks only. cramjam.lz4.compress links its blocks always.
#   lz4.frame.compress links them if there are several, and marks a frame of one block as independent: what worked in a test with
#   a small message fails in production. The Kafka clients aiokafka (which uses cramjam) and kafka-python (which uses lz4) set the
#   mode themselves. Concerns who compresses a batch or a telemetry payload by hand: a proxy, a replayer, a test.
# Right: all frames are valid by the format's own specification.
# Output (2026-11-27):
#   aiokafka.large 300000
#   aiokafka.small 1000
#   cramjam.large Dependent block stream is unsupported
#   cramjam.small Dependent block stream is unsupported
#   kafka_python.large 300000
#   kafka_python.small 1000
#   lz4.large Dependent block stream is unsupported
#   lz4.small 1000
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check lz4==4.4.5 cramjam==2.14.0 aiokafka==0.14.0 kafka-python==3.0.12
. "$(dirname "$script")/support/jars"
jars lib org.apache.kafka:kafka-clients:4.4.0 at.yawk.lz4:lz4-java:1.10.1 org.slf4j:slf4j-api:1.7.36
cat > write.py <<'E'
import random
from pathlib import Path

import aiokafka.codec
import cramjam
import kafka.codec
import lz4.frame

random.seed(1)
WRITERS = {
    "aiokafka": aiokafka.codec.lz4_encode,
    "cramjam": cramjam.lz4.compress,
    "kafka_python": kafka.codec.lz4_encode,
    "lz4": lz4.frame.compress,
}
for size, length in {"small": 1_000, "large": 300_000}.items():
    data = bytes(random.choices(b"abcdefgh", k=length))
    for name, compress in WRITERS.items():
        Path(f"{name}.{size}").write_bytes(bytes(compress(data)))
E
venv/bin/python write.py
cat > Read.java <<'E'
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.utils.internals.BufferSupplier;

class Read {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            ByteBuffer frame = ByteBuffer.wrap(Files.readAllBytes(Path.of(name)));
            String said;
            try (var in = Compression.of(CompressionType.LZ4).build().wrapForInput(frame, (byte) 2, BufferSupplier.create())) {
                said = "" + in.readAllBytes().length;
            } catch (Exception error) {
                Throwable cause = error;
                while (cause.getCause() != null) cause = cause.getCause();
                said = cause.getMessage();
            }
            System.out.println(name + " " + said);
        }
    }
}
E
java -cp 'lib/*' Read.java ./*.large ./*.small 2> warnings | sed 's,^\./,,' | LC_ALL=C sort | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
