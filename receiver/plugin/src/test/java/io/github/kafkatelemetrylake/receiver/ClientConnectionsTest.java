package io.github.kafkatelemetrylake.receiver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.Gauge;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Gauges as the broker's Selectors register them, in a registry like the broker's. */
@Timeout(60)
class ClientConnectionsTest {
    private final Metrics metrics = new Metrics();
    private final ClientConnections connections = new ClientConnections();

    ClientConnectionsTest() {
        metrics.addReporter(new MetricsReporter() {
            @Override
            public void init(List<KafkaMetric> registered) {
                registered.forEach(this::metricChange);
            }

            @Override
            public void metricChange(KafkaMetric metric) {
                connections.add(metric);
            }

            @Override
            public void metricRemoval(KafkaMetric metric) {
                connections.remove(metric);
            }

            @Override
            public void close() {}

            @Override
            public void configure(Map<String, ?> configs) {}
        });
    }

    @AfterEach
    void close() {
        metrics.close();
    }

    private MetricName gauge(String name, int value, Map<String, String> tags) {
        MetricName metric = metrics.metricName(name, "socket-server-metrics", "", tags);
        metrics.addMetric(metric, (Gauge<Integer>) (config, now) -> value);
        return metric;
    }

    private MetricName all(String listener, String thread, int value) {
        return gauge("connection-count", value, Map.of("listener", listener, "networkProcessor", thread));
    }

    private MetricName software(String listener, String thread, String name, String version, int value) {
        Map<String, String> tags = new LinkedHashMap<>();
        tags.put("clientSoftwareName", name);
        tags.put("clientSoftwareVersion", version);
        tags.put("listener", listener);
        tags.put("networkProcessor", thread);
        return gauge("connections", value, tags);
    }

    private static String entry(String listener, String name, String version, int connections) {
        return "{\"listener\":\"" + listener + "\",\"client_software_name\":\"" + name + "\",\"client_software_version\":\""
                + version + "\",\"connections\":" + connections + "}";
    }

    private static String others(String listener, int connections) {
        return "{\"listener\":\"" + listener + "\",\"connections\":" + connections + "}";
    }

    private static String array(String... entries) {
        return "[" + String.join(",", entries) + "]";
    }

    @Test
    void networkThreadsAreSummedUpAndTheOthersCountedOnce() {
        all("A", "0", 4);
        all("A", "1", 3);
        all("B", "2", 1);
        software("A", "0", "apache-kafka-java", "4.3.1", 2);
        software("A", "1", "apache-kafka-java", "4.3.1", 3);
        software("A", "1", "librdkafka", "2.10.1", 0);
        software("B", "2", "apache-kafka-java", "4.3.1", 1);
        assertEquals(
                array(entry("A", "apache-kafka-java", "4.3.1", 5), entry("B", "apache-kafka-java", "4.3.1", 1),
                        others("A", 2), others("B", 0)),
                connections.json());
    }

    @Test
    void aGaugeThatIsRemovedNoLongerCounts() {
        all("A", "0", 2);
        MetricName removed = software("A", "0", "sarama", "1.45.0", 2);
        assertEquals(array(entry("A", "sarama", "1.45.0", 2), others("A", 0)), connections.json());
        metrics.removeMetric(removed);
        assertEquals(array(others("A", 2)), connections.json());
    }

    @Test
    void aBrokerWithoutTheMetricsReportsNone() {
        gauge("connections", 7, Map.of("cipher", "TLS", "protocol", "TLSv1.3", "listener", "A"));
        assertNull(connections.json());
    }

    @Test
    void metricsThatCannotBeReadLeaveTheStatusAsItIs() {
        metrics.addMetric(
                metrics.metricName("connection-count", "socket-server-metrics", "", Map.of("listener", "A")),
                (Gauge<Integer>) (config, now) -> {
                    throw new IllegalStateException("closed");
                });
        assertNull(connections.json());
    }

    /** Kafka refuses other characters than letters, digits, - and ., and allows any length and number. */
    @Test
    void namesThatClientsChooseAreBounded() {
        all("A", "0", 1_000);
        software("A", "0", "n".repeat(ClientConnections.MAX_CHARACTERS + 1), "1", 50);
        software("A", "0", "a", "1".repeat(ClientConnections.MAX_CHARACTERS + 1), 50);
        for (int i = 0; i < 2 * ClientConnections.MAX_SOFTWARE; i++) {
            software("A", "0", String.format("n%03d", i) + "n".repeat(ClientConnections.MAX_CHARACTERS - 4), "1", 1);
        }
        software("A", "0", "zz", "1", 3);
        String json = connections.json();
        assertTrue(json.startsWith("[" + entry("A", "zz", "1", 3)), json);
        assertTrue(json.contains("\"n098nnn"), json);
        assertTrue(json.endsWith("," + array(others("A", 1_000 - 3 - 99)).substring(1)), json);
        assertEquals(ClientConnections.MAX_SOFTWARE, json.split("client_software_name").length - 1);
        assertTrue(json.length() < 32_768, "a status has " + json.length() + " characters");
    }
}
