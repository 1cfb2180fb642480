#!/bin/bash
# Kafka's broker calls its telemetry receivers one after the other: an exception of one robs the others, and ends the client's telemetry.
#
# Version: kafka-server, kafka-server-common and kafka-clients 4.4.0
# Behaviour: a broker may have several plugins of metric.reporters that receive clients' telemetry. Deprecated receivers
#   (ClientTelemetryReceiver) are called before exporters, whatever their order in the configuration. If one throws, those after
#   it aren't called for this push, and the client is answered INVALID_RECORD, on which clients never push again.
# Right: each receiver gets each push; the client isn't to blame.
# Output (2026-11-27):
#   all well: NONE, called receiver exporter
#   receiver throws: INVALID_RECORD, called receiver
#   exporter throws: INVALID_RECORD, called receiver exporter
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

. "$(dirname "$script")/support/jars"
kafka=org.apache.kafka
jars lib $kafka:kafka-clients:4.4.0 $kafka:kafka-server:4.4.0 $kafka:kafka-server-common:4.4.0 org.slf4j:slf4j-api:1.7.36
cat > Ask.java <<'E'
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

class Ask {
    static final List<String> CALLED = new ArrayList<>();
    static String throwing = "nobody";

    public static void main(String[] none) throws Exception {
        Broker broker = new Broker(1000);
        broker.plugins.add((ClientTelemetryExporter) (context, payload) -> called("exporter"));
        broker.plugins.add((ClientTelemetryReceiver) (context, payload) -> called("receiver"));
        broker.subscription("all", "metrics", "*");
        for (String who : new String[] {"nobody", "receiver", "exporter"}) {
            CALLED.clear();
            throwing = who;
            var answer = broker.push(broker.hello(who), who, new byte[1], 0, false);
            System.out.println((who.equals("nobody") ? "all well" : who + " throws") + ": " + answer + ", called "
                    + String.join(" ", CALLED));
        }
        broker.close();
    }

    static void called(String name) {
        CALLED.add(name);
        if (name.equals(throwing)) throw new IllegalStateException("of the " + name);
    }
}
E
javac -nowarn -d classes -cp 'lib/*' "$(dirname "$script")/support/Broker.java" Ask.java 2> warnings
java -cp 'classes:lib/*' Ask 2>> warnings | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
