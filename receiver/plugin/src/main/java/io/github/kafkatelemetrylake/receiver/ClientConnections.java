package io.github.kafkatelemetrylake.receiver;

import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;

/**
 * How many connections the broker has, by listener and client software (KIP-511), as its own metrics count them.
 *
 * <p>Kafka's Selector counts the connections of each network thread, and those of each software name and version, up to
 * 100 of them. Clients choose both texts, so a status has the most frequent ones only. Of each listener one entry without
 * a name has all other connections.
 */
final class ClientConnections {
    static final int MAX_SOFTWARE = 100;
    /** Longest name or version; longer ones count as the others. */
    static final int MAX_CHARACTERS = 128;
    private static final String GROUP = "socket-server-metrics";
    private static final String ALL = "connection-count";
    private static final String OF_SOFTWARE = "connections";
    private static final String LISTENER = "listener";
    private static final String NAME = "clientSoftwareName";
    private static final String VERSION = "clientSoftwareVersion";

    private final Map<MetricName, KafkaMetric> gauges = new ConcurrentHashMap<>();

    /** Called on network threads: never throws. */
    void add(KafkaMetric metric) {
        MetricName name = metric.metricName();
        Map<String, String> tags = name.tags();
        boolean counts = name.name().equals(ALL)
                || name.name().equals(OF_SOFTWARE) && tags.containsKey(NAME) && tags.containsKey(VERSION);
        if (counts && name.group().equals(GROUP) && tags.containsKey(LISTENER)) {
            gauges.put(name, metric);
        }
    }

    /** Removes this metric, but not one of the same name that was registered later. */
    void remove(KafkaMetric metric) {
        gauges.remove(metric.metricName(), metric);
    }

    /** A JSON array; null if the broker has no such metrics, or they can't be read: a status lands without them. */
    String json() {
        try {
            return gauges.isEmpty() ? null : counted();
        } catch (RuntimeException e) {
            return null;
        }
    }

    private String counted() {
        Map<String, Long> others = new TreeMap<>();  // by listener
        Map<List<String>, Long> software = new HashMap<>();  // by listener, name and version
        gauges.forEach((name, metric) -> {
            Map<String, String> tags = name.tags();
            long connections = value(metric);
            if (name.name().equals(ALL)) {
                others.merge(tags.get(LISTENER), connections, Long::sum);
            } else if (connections > 0 && isShort(tags.get(NAME)) && isShort(tags.get(VERSION))) {
                software.merge(List.of(tags.get(LISTENER), tags.get(NAME), tags.get(VERSION)), connections, Long::sum);
            }
        });
        List<Map.Entry<List<String>, Long>> largest = software.entrySet().stream()
                .sorted(Map.Entry.<List<String>, Long>comparingByValue().reversed()
                        .thenComparing(entry -> entry.getKey().toString(), Comparator.naturalOrder()))
                .limit(MAX_SOFTWARE)
                .collect(Collectors.toList());
        largest.forEach(entry -> others.merge(entry.getKey().get(0), -entry.getValue(), Long::sum));
        // The gauges are read one after the other, while connections come and go.
        return Stream.concat(
                        largest.stream().map(entry -> "{\"listener\":" + StatusRecord.text(entry.getKey().get(0))
                                + ",\"client_software_name\":" + StatusRecord.text(entry.getKey().get(1))
                                + ",\"client_software_version\":" + StatusRecord.text(entry.getKey().get(2))
                                + ",\"connections\":" + entry.getValue() + "}"),
                        others.entrySet().stream().map(entry -> "{\"listener\":" + StatusRecord.text(entry.getKey())
                                + ",\"connections\":" + Math.max(0, entry.getValue()) + "}"))
                .collect(Collectors.joining(",", "[", "]"));
    }

    private static boolean isShort(String text) {
        return text.length() <= MAX_CHARACTERS;
    }

    private static long value(KafkaMetric metric) {
        Object value = metric.metricValue();
        return value instanceof Number ? ((Number) value).longValue() : 0;
    }
}
