#!/bin/bash
# Kafka's Java client: of two metrics whose names differ by a dash, a dot or their case only the last one registered is pushed.
#
# Version: kafka-clients 4.4.0
# Behaviour: telemetry turns "orders-total", "orders.total" and "Orders-Total" of one group into the one name
#   org.apache.kafka.shop.orders.total. The client's own list of metrics holds all three; of the pushed ones the last hides
#   the others. When that one is removed, the others don't come back.
# Right: three series, or an error at the registration.
# Output (2026-11-27):
#   in the client: 3
#   orders-total: pushed 7
#   orders-total, orders.total: pushed 20
#   orders-total, orders.total, Orders-Total: pushed 1
#   the last one removed: pushed nothing
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

. "$(dirname "$script")/support/jars"
jars lib org.apache.kafka:kafka-clients:4.4.0 org.slf4j:slf4j-api:1.7.36
cat > Ask.java <<'E'
package org.apache.kafka.common.telemetry.internals;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.stats.CumulativeSum;

class Ask {
    static final KafkaMetricsCollector COLLECTOR = new KafkaMetricsCollector(
            TelemetryMetricNamingConvention.getClientTelemetryMetricNamingStrategy("org.apache.kafka"), Set.of());

    public static void main(String[] none) {
        Metrics metrics = new Metrics();
        List<KafkaMetric> made = new ArrayList<>();
        for (var each : List.of(Map.entry("orders-total", 7), Map.entry("orders.total", 20), Map.entry("Orders-Total", 1))) {
            var name = metrics.metricName(each.getKey(), "shop");
            var sensor = metrics.sensor(each.getKey());
            sensor.add(name, new CumulativeSum());
            sensor.record(each.getValue());
            made.add(metrics.metric(name));
        }
        System.out.println("in the client: " + made.size());
        COLLECTOR.init(List.of());
        List<String> names = new ArrayList<>();
        for (KafkaMetric metric : made) {
            COLLECTOR.metricChange(metric);
            names.add(metric.metricName().name());
            System.out.println(String.join(", ", names) + ": pushed " + pushed());
        }
        COLLECTOR.metricRemoval(made.get(2));
        System.out.println("the last one removed: pushed " + pushed());
        metrics.close();
    }

    static String pushed() {
        var emitter = new ClientTelemetryEmitter(key -> key.key().name().endsWith("shop.orders.total"), true);
        COLLECTOR.collect(emitter);
        List<String> values = new ArrayList<>();
        for (var metric : emitter.emittedMetrics())
            values.add("" + Math.round(metric.builder().getSum().getDataPoints(0).getAsDouble()));
        return values.isEmpty() ? "nothing" : String.join(" and ", values);
    }
}
E
javac -nowarn -d classes -cp 'lib/*' Ask.java 2> warnings
java -cp 'classes:lib/*' org.apache.kafka.common.telemetry.internals.Ask 2>> warnings | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
