#!/bin/bash
# Kafka 4.4.0's broker forgets a client's goodbye after one more push, and a goodbye without metrics reaches no receiver.
#
# Version: kafka-server, kafka-server-common and kafka-clients 4.4.0
# Behaviour: after a push with Terminating=true the next one of that instance is refused (INVALID_REQUEST), and the one after that
#   is taken and given to the receivers again: the flag is overwritten by that of the refused request. A terminating push
#   whose metrics are empty is answered NONE, but no receiver is called, so what is behind it never hears of the end.
# Right: an instance that has said goodbye is refused until it asks for a subscription; a receiver hears each goodbye.
# Output (2026-11-27):
#   terminating, 1 byte: NONE, receivers got 1 (terminating)
#   1 byte: INVALID_REQUEST, receivers got 0
#   1 byte: NONE, receivers got 1
#   1 byte: NONE, receivers got 1
#   another client, terminating, 0 bytes: NONE, receivers got 0
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
import org.apache.kafka.common.message.GetTelemetrySubscriptionsResponseData;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;

class Ask {
    static final List<Boolean> GOT = new ArrayList<>();

    public static void main(String[] none) throws Exception {
        Broker broker = new Broker(1000);
        broker.plugins.add((ClientTelemetryExporter) (context, payload) -> GOT.add(payload.isTerminating()));
        broker.subscription("all", "metrics", "*");
        GetTelemetrySubscriptionsResponseData client = broker.hello("a");
        push(broker, "terminating, 1 byte", client, "a", 1, true);
        for (int again = 0; again < 3; again++) push(broker, "1 byte", client, "a", 1, false);
        push(broker, "another client, terminating, 0 bytes", broker.hello("b"), "b", 0, true);
        broker.close();
    }

    static void push(Broker broker, String what, GetTelemetrySubscriptionsResponseData client, String id, int bytes, boolean end)
            throws Exception {
        GOT.clear();
        broker.later(300_000);
        System.out.println(what + ": " + broker.push(client, id, new byte[bytes], 0, end) + ", receivers got " + GOT.size()
                + (GOT.contains(true) ? " (terminating)" : ""));
    }
}
E
javac -nowarn -d classes -cp 'lib/*' "$(dirname "$script")/support/Broker.java" Ask.java 2> warnings
java -cp 'classes:lib/*' Ask 2>> warnings | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
