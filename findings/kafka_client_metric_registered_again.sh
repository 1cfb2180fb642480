#!/bin/bash
# Kafka's Java client: a metric that is registered for telemetry a second time pushes its whole total again as a delta.
#
# Version: kafka-clients 4.4.0
# Behaviour: registerMetricForSubscription (KIP-1076) of a metric that is registered already, as an application does that
#   registers on each rebalance or from two places, makes the client forget what it has pushed: the next delta is the total since
#   the metric was made, over an interval that begins at the second registration. The sum of the deltas is then greater than
#   the total: 100 + 5 + 106 of 106. Run here with the class that collects (KafkaMetricsCollector), which the call reaches.
# Right: registering twice is once, so the third delta is 1.
# Output (2026-11-27):
#   100 counted: delta 100
#   5 more: delta 5
#   registered again, 1 more: delta 106
#   1 more: delta 1
set -euo pipefail
script=$(realpath "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

. "$(dirname "$script")/support/jars"
jars lib org.apache.kafka:kafka-clients:4.4.0 org.slf4j:slf4j-api:1.7.36
cat > Ask.java <<'E'
package org.apache.kafka.common.telemetry.internals;

import java.util.List;
import java.util.Set;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.CumulativeSum;

class Ask {
    static final KafkaMetricsCollector COLLECTOR = new KafkaMetricsCollector(
            TelemetryMetricNamingConvention.getClientTelemetryMetricNamingStrategy("org.apache.kafka"), Set.of());

    public static void main(String[] none) {
        Metrics metrics = new Metrics();
        Sensor sensor = metrics.sensor("orders");
        var name = metrics.metricName("orders-total", "shop");
        sensor.add(name, new CumulativeSum());
        KafkaMetric metric = metrics.metric(name);
        COLLECTOR.init(List.of());
        COLLECTOR.metricChange(metric);
        push(sensor, 100, "100 counted");
        push(sensor, 5, "5 more");
        COLLECTOR.metricChange(metric);
        push(sensor, 1, "registered again, 1 more");
        push(sensor, 1, "1 more");
        metrics.close();
    }

    static void push(Sensor sensor, int more, String what) {
        sensor.record(more);
        var emitter = new ClientTelemetryEmitter(key -> key.key().name().endsWith("shop.orders.total"), true);
        COLLECTOR.collect(emitter);
        var point = emitter.emittedMetrics().get(0).builder().getSum().getDataPoints(0);
        System.out.println(what + ": delta " + Math.round(point.getAsDouble()));
    }
}
E
javac -nowarn -d classes -cp 'lib/*' Ask.java 2> warnings
java -cp 'classes:lib/*' org.apache.kafka.common.telemetry.internals.Ask 2>> warnings | tee seen
diff <(sed -n '/^# Output/,/^set/s/^#   //p' "$script") seen
