package io.github.kafkatelemetrylake.receiver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import javax.management.openmbean.TabularData;
import org.apache.kafka.common.metrics.KafkaMetricsContext;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The plugin as a broker uses it; no broker listens, so nothing lands. */
@Timeout(60)
class EntryClassesTest {
    private static Map<String, Object> config() {
        Map<String, Object> config = Fakes.config(
                "bootstrap.servers", "127.0.0.1:1", "close.timeout.ms", "100", "queue.records", "-5",
                "producer.max.block.ms", "100");
        config.put("node.id", "3");
        return config;
    }

    private static final class Context implements ClientTelemetryContext {
        @Override
        public int pushIntervalMs() {
            return 1_000;
        }

        @Override
        public AuthorizableRequestContext authorizableRequestContext() {
            return Fakes.context("app");
        }
    }

    @Test
    void exporterCountsInJmxAndSettlesEverythingAtClose() throws Exception {
        MBeanServer jmx = ManagementFactory.getPlatformMBeanServer();
        ObjectName name = new ObjectName("io.github.kafkatelemetrylake:type=ClientTelemetryLander");
        ClientTelemetryLakeExporter plugin = new ClientTelemetryLakeExporter();
        plugin.configure(config());
        plugin.contextChange(new KafkaMetricsContext("kafka.server", Map.of("kafka.cluster.id", "abc", "kafka.node.id", "3")));
        assertFalse(jmx.isRegistered(name));  // the controller's instance stays idle

        ClientTelemetryExporter exporter = plugin.clientTelemetryExporter();
        exporter.exportMetrics(new Context(), Fakes.payload(new byte[] {1}));
        exporter.exportMetrics(null, null);

        assertEquals(2L, jmx.getAttribute(name, "Received"));
        assertEquals(0L, jmx.getAttribute(name, "Landed"));
        assertEquals(1L, jmx.getAttribute(name, "DroppedTotal"));
        assertEquals(1L, jmx.getAttribute(name, "QueueDepth"));
        TabularData dropped = (TabularData) jmx.getAttribute(name, "Dropped");
        assertEquals(1L, dropped.get(new Object[] {"error"}).get("value"));
        assertTrue((double) jmx.getAttribute(name, "RequestThreadMicrosMax") > 0);
        assertTrue((double) jmx.getAttribute(name, "RequestThreadMicrosAvg") > 0);

        plugin.close();
        assertFalse(jmx.isRegistered(name));
        exporter.exportMetrics(new Context(), Fakes.payload(new byte[] {1}));  // the broker still may
        plugin.close();
    }

    @Test
    @SuppressWarnings("removal")
    void receiverTakesPushesWithoutAnInterval() throws Exception {
        ClientTelemetryLakeReceiver plugin = new ClientTelemetryLakeReceiver();
        plugin.configure(config());
        plugin.clientReceiver().exportMetrics(Fakes.context("app"), Fakes.payload(new byte[] {1}));

        assertEquals(1L, ManagementFactory.getPlatformMBeanServer().getAttribute(new ObjectName(LanderMetrics.NAME), "QueueDepth"));
        plugin.close();
    }

    @Test
    void quotaSensorsOfTheBrokerAreTheSamplers() throws Exception {
        MBeanServer jmx = ManagementFactory.getPlatformMBeanServer();
        ObjectName name = new ObjectName(LanderMetrics.NAME);
        ClientTelemetryLakeExporter plugin = new ClientTelemetryLakeExporter();
        plugin.configure(config());
        try (Metrics metrics = new Metrics()) {
            Map<String, String> tags = Map.of("user", "ann", "client-id", "");
            metrics.sensor("a").add(metrics.metricName("byte-rate", "Fetch", "", tags), new Rate());
            metrics.addReporter(plugin);
            metrics.sensor("b").add(metrics.metricName("byte-rate", "Produce", "", tags), new Rate());
            plugin.clientTelemetryExporter();
            assertEquals(2, jmx.getAttribute(name, "QuotaSensors"));
            assertEquals(0L, jmx.getAttribute(name, "QuotaSamplesLanded"));
            assertEquals(0L, jmx.getAttribute(name, "QuotaSamplesLost"));
            metrics.removeSensor("a");
            assertEquals(1, jmx.getAttribute(name, "QuotaSensors"));
        }
    }

    @Test
    void neverUsedPluginClosesQuietly() {
        ClientTelemetryLakeReceiver plugin = new ClientTelemetryLakeReceiver();
        plugin.configure(config());
        plugin.close();
    }

    /** A 3.9 broker lacks the exporter classes and a 5.0 broker the receiver classes: no class may refer to both. */
    @Test
    void onlyTheEntryClassesNameWhatSomeVersionsLack() throws IOException {
        assertTrue(names(ClientTelemetryLakeExporter.class, "ClientTelemetryExporter"));
        assertFalse(names(ClientTelemetryLakeExporter.class, "ClientTelemetryReceiver"));
        assertTrue(names(ClientTelemetryLakeReceiver.class, "ClientTelemetryReceiver"));
        assertFalse(names(ClientTelemetryLakeReceiver.class, "ClientTelemetryExporter"));
        for (Class<?> shared : new Class<?>[] {LanderReporter.class, LandingService.class, Lander.class, Push.class,
            BrokerPush.class, StatusPublisher.class, QuotaSampler.class}) {
            assertFalse(names(shared, "ClientTelemetryExporter"), shared.getName());
            assertFalse(names(shared, "ClientTelemetryContext"), shared.getName());
            assertFalse(names(shared, "ClientTelemetryReceiver"), shared.getName());
        }
    }

    private static boolean names(Class<?> type, String telemetryClass) throws IOException {
        try (InputStream file = type.getResourceAsStream(type.getSimpleName() + ".class")) {
            return new String(file.readAllBytes(), StandardCharsets.ISO_8859_1)
                    .contains("org/apache/kafka/server/telemetry/" + telemetryClass);
        }
    }
}
