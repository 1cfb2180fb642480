#!/bin/bash
# Kafka takes telemetry intervals of up to an hour, but never tells a client more than five minutes; and the fastest subscription sets the pace of all.
#
# Version: kafka-server, kafka-server-common and kafka-clients 4.4.0
# Behaviour: interval.ms of a client metrics subscription is valid from 100 to 3,600,000. What a client is told is the
#   smallest interval of the subscriptions that match it, but 300,000 at most. So whoever sets an hour to save load gets
#   twelve times the pushes, and two metrics asked for each second make all metrics of that client come each second.
# Right: what was configured and found valid.
# Output (2026-11-27):
#   interval.ms=3600000: valid, the client is told 300000
#   interval.ms=600000: valid, the client is told 300000
#   interval.ms=60000: valid, the client is told 60000
#   interval.ms=3600000 for * and 1000 for a.b: told 1000 for [*]
#   interval.ms=3600001: not valid
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

. "$(dirname "$script")/support/jars"
kafka=org.apache.kafka
jars lib $kafka:kafka-clients:4.4.0 $kafka:kafka-server:4.4.0 $kafka:kafka-server-common:4.4.0 org.slf4j:slf4j-api:1.7.36
cat > Ask.java <<'E'
import org.apache.kafka.common.errors.InvalidRequestException;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;

class Ask {
    public static void main(String[] none) throws Exception {
        Broker broker = new Broker(1000);
        int client = 0;
        for (String interval : new String[] {"3600000", "600000", "60000"}) {
            ClientMetricsConfigs.validate("s", Broker.properties("metrics", "*", "interval.ms", interval));
            broker.subscription("s", "metrics", "*", "interval.ms", interval);
            System.out.println("interval.ms=" + interval + ": valid, the client is told "
                    + broker.hello("client" + client++).pushIntervalMs());
        }
        broker.subscription("s", "metrics", "*", "interval.ms", "3600000");
        broker.subscription("fast", "metrics", "a.b", "interval.ms", "1000");
        var both = broker.hello("both");
        System.out.println("interval.ms=3600000 for * and 1000 for a.b: told " + both.pushIntervalMs() + " for "
                + both.requestedMetrics());
        try {
            ClientMetricsConfigs.validate("s", Broker.properties("metrics", "*", "interval.ms", "3600001"));
        } catch (InvalidRequestException error) {
            System.out.println("interval.ms=3600001: not valid");
        }
        broker.close();
    }
}
E
javac -nowarn -d classes -cp 'lib/*' "$(dirname "$script")/support/Broker.java" Ask.java 2> warnings
java -cp 'classes:lib/*' Ask 2>> warnings | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
