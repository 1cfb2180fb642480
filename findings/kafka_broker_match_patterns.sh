#!/bin/bash
# Kafka's client metrics: of two patterns for one key the last alone counts, silently; a comma or "=" in a pattern is refused.
#
# Version: kafka-server, kafka-server-common and kafka-clients 4.4.0
# Behaviour: "match" is a list of key=regular expression. The list is cut at commas before the expressions are read, and each
#   entry at each "=", so counted repetitions ({2,3}) and lookaheads ((?=x)) are an error about a pattern that nobody wrote.
#   A repeated key is valid, and the earlier pattern is dropped without a word. Patterns match the whole text.
# Right: both patterns count (one of them, or both), or the repetition is refused.
# Output (2026-11-27):
#   client_id=orders,client_id=audit: orders no, audit yes
#   client_id=orders|audit: orders yes, audit yes
#   client_id=ord: orders no, audit no
#   client_id=[a-z]{5,6}: Illegal client matching pattern: client_id=[a-z]{5
#   client_id=(?=a).*: Illegal client matching pattern: client_id=(?=a).*
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

. "$(dirname "$script")/support/jars"
kafka=org.apache.kafka
jars lib $kafka:kafka-clients:4.4.0 $kafka:kafka-server:4.4.0 $kafka:kafka-server-common:4.4.0 org.slf4j:slf4j-api:1.7.36
cat > Ask.java <<'E'
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;

class Ask {
    public static void main(String[] none) throws Exception {
        String[] patterns = {
            "client_id=orders,client_id=audit", "client_id=orders|audit", "client_id=ord", "client_id=[a-z]{5,6}",
            "client_id=(?=a).*",
        };
        for (String match : patterns) {
            try {
                ClientMetricsConfigs.validate("s", Broker.properties("metrics", "*", "match", match));
            } catch (InvalidConfigurationException error) {
                System.out.println(match + ": " + error.getMessage());
                continue;
            }
            Broker broker = new Broker(1000);
            broker.subscription("s", "metrics", "*", "match", match);
            System.out.println(match + ": orders " + asked(broker, "orders") + ", audit " + asked(broker, "audit"));
            broker.close();
        }
    }

    static String asked(Broker broker, String clientId) throws Exception {
        return broker.hello(clientId).requestedMetrics().isEmpty() ? "no" : "yes";
    }
}
E
javac -nowarn -d classes -cp 'lib/*' "$(dirname "$script")/support/Broker.java" Ask.java 2> warnings
java -cp 'classes:lib/*' Ask 2>> warnings | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
