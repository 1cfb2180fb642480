#!/bin/bash
# Kafka brokers answer a telemetry push that is too large only when decompressed with INVALID_RECORD, which ends a client's telemetry for good.
#
# Version: kafka-server, kafka-server-common and kafka-clients 4.2.1, 4.2.2, 4.3.0, 4.3.1, 4.4.0
# Behaviour: a push whose bytes on the wire exceed telemetry.max.bytes is answered TELEMETRY_TOO_LARGE, and its client tries
#   again. Since 4.2.2 and 4.3.1 the same limit holds for the decompressed bytes, but the answer is INVALID_RECORD, which clients
#   take as fatal: they push nothing until their process starts anew. So an upgrade by a patch release silences
#   clients of many partitions, of whose metrics 2,000 bytes may be 35 on the wire.
# Right: TELEMETRY_TOO_LARGE in both rows.
# Output (2026-11-27):
#   4.2.1: 2000 bytes uncompressed TELEMETRY_TOO_LARGE, gzip in 35 bytes NONE
#   4.2.2: 2000 bytes uncompressed TELEMETRY_TOO_LARGE, gzip in 35 bytes INVALID_RECORD
#   4.3.0: 2000 bytes uncompressed TELEMETRY_TOO_LARGE, gzip in 35 bytes NONE
#   4.3.1: 2000 bytes uncompressed TELEMETRY_TOO_LARGE, gzip in 35 bytes INVALID_RECORD
#   4.4.0: 2000 bytes uncompressed TELEMETRY_TOO_LARGE, gzip in 35 bytes INVALID_RECORD
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat > Ask.java <<'E'
import java.io.ByteArrayOutputStream;
import java.util.zip.GZIPOutputStream;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;

class Ask {
    public static void main(String[] none) throws Exception {
        Broker broker = new Broker(1000);
        broker.plugins.add((ClientTelemetryExporter) (context, payload) -> { });
        broker.subscription("all", "metrics", "*");
        byte[] metrics = new byte[2000];
        ByteArrayOutputStream packed = new ByteArrayOutputStream();
        try (GZIPOutputStream gzip = new GZIPOutputStream(packed)) {
            gzip.write(metrics);
        }
        System.out.println("2000 bytes uncompressed " + broker.push(broker.hello("a"), "a", metrics, 0, false)
                + ", gzip in " + packed.size() + " bytes "
                + broker.push(broker.hello("b"), "b", packed.toByteArray(), 1, false));
        broker.close();
    }
}
E
. "$(dirname "$script")/support/jars"
versions="4.2.1 4.2.2 4.3.0 4.3.1 4.4.0"
wanted=(org.slf4j:slf4j-api:1.7.36)
for version in $versions; do
    for name in kafka-clients kafka-server kafka-server-common; do wanted+=("org.apache.kafka:$name:$version"); done
done
jars lib "${wanted[@]}"
for version in $versions; do
    path=$(printf '%s:' lib/kafka-*-$version.jar lib/slf4j-api-*.jar)
    javac -nowarn -d classes$version -cp "$path" "$(dirname "$script")/support/Broker.java" Ask.java 2>> warnings
    echo "$version: $(java -cp "classes$version:$path" Ask 2>> warnings)"
done | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
