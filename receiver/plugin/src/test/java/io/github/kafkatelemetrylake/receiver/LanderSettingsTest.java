package io.github.kafkatelemetrylake.receiver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class LanderSettingsTest {
    private static final int MIB = 1024 * 1024;
    private final List<String> errors = new ArrayList<>();

    private LanderSettings read(Map<String, Object> config) {
        return new LanderSettings(config, (problem, effect) -> errors.add(problem + "; " + effect));
    }

    @Test
    void defaults() {
        Map<String, Object> config = Fakes.config();
        config.put("log.dirs", "/data/a,/data/b");
        LanderSettings settings = read(config);

        assertEquals(List.of(), errors);
        assertEquals("client-telemetry", settings.topic);
        assertEquals("client-telemetry-status", settings.statusTopic);
        assertEquals(10_000, settings.queueRecords);
        assertEquals(64 * MIB, settings.queueBytes);
        assertEquals(16 * MIB, settings.payloadMaxBytes);
        assertEquals("none", settings.payloadCompression);
        assertEquals(1024, settings.headerMaxBytes);
        assertEquals(10_000, settings.statusIntervalMs);
        assertEquals(5_000, settings.closeTimeoutMs);
        assertTrue(settings.quotasEnabled);
        assertEquals("client-quotas", settings.quotasTopic);
        assertEquals(10_000, settings.quotasIntervalMs);
        assertEquals(Paths.get("/data/a/client-telemetry-lander.json"), settings.statusFile);
        assertEquals("localhost:9092", settings.producer.get("bootstrap.servers"));
        assertEquals("all", settings.producer.get("acks"));
        assertEquals("true", settings.producer.get("enable.idempotence"));
        assertEquals("false", settings.producer.get("enable.metrics.push"));
        assertEquals("rebootstrap", settings.producer.get("metadata.recovery.strategy"));
        assertEquals("zstd", settings.producer.get("compression.type"));
        assertEquals(120_000, settings.producer.deliveryTimeoutMs());
        assertNull(read(Fakes.config()).statusFile);
    }

    @Test
    void limitsFollowTheBrokersTelemetryMaxBytes() {
        Map<String, Object> config = Fakes.config();
        config.put("telemetry.max.bytes", "50000000");
        LanderSettings settings = read(config);

        assertEquals(List.of(), errors);
        assertEquals(50_000_000, settings.payloadMaxBytes);
        assertEquals(100_000_000, settings.queueBytes);
        assertEquals("50065536", settings.producer.get("max.request.size"));
        assertEquals("100131072", settings.producer.get("buffer.memory"));
    }

    @Test
    void brokerPropertiesMayBeParsedAlready() {
        Map<String, Object> config = new HashMap<>();
        config.put("listeners", List.of("CONTROLLER://c:1", "PLAINTEXT://b:2"));
        config.put("controller.listener.names", List.of("CONTROLLER"));
        config.put("log.dirs", List.of("/data/a", "/data/b"));
        config.put("telemetry.max.bytes", 50_000_000);
        LanderSettings settings = read(config);

        assertEquals(List.of(), errors);
        assertEquals("b:2", settings.producer.get("bootstrap.servers"));
        assertEquals(Paths.get("/data/a/client-telemetry-lander.json"), settings.statusFile);
        assertEquals(50_000_000, settings.payloadMaxBytes);
    }

    @Test
    void missingBootstrapServersAreAskedFor() {
        LanderSettings settings = read(new HashMap<>(Map.of("listeners", "SASL_SSL://:9093")));

        assertEquals(1, errors.size());
        assertTrue(errors.get(0).startsWith("client.telemetry.lander.bootstrap.servers is needed"), errors.get(0));
        assertEquals("", settings.producer.get("bootstrap.servers"));
    }

    @Test
    void givenValuesAreUsed() {
        LanderSettings settings = read(Fakes.config(
                "topic", "t", "queue.records", "7", "payload.max.bytes", "1000", "queue.bytes", "70000",
                "payload.compression", "lz4", "status.file", "", "bootstrap.servers", "other:1",
                "producer.compression.type", "gzip", "producer.security.protocol", "SASL_SSL", "producer.linger.ms", "5"));

        assertEquals(List.of(), errors);
        assertEquals("t", settings.topic);
        assertEquals(7, settings.queueRecords);
        assertEquals(70_000, settings.queueBytes);
        assertEquals("lz4", settings.payloadCompression);
        assertNull(settings.statusFile);
        assertEquals("other:1", settings.producer.get("bootstrap.servers"));
        assertEquals("gzip", settings.producer.get("compression.type"));
        assertEquals("SASL_SSL", settings.producer.get("security.protocol"));
        assertEquals("5", settings.producer.get("linger.ms"));
        assertEquals("66536", settings.producer.get("max.request.size"));
    }

    /** Another codec for batches of compressed payloads, unless one is configured; not from settings that are refused. */
    @ParameterizedTest
    @CsvSource({
        "zstd, , 120000, lz4",
        "gzip, , 120000, lz4",
        "none, , 120000, zstd",
        "zstd, zstd, 120000, zstd",
        "none, gzip, 120000, gzip",
        "zstd, gzip, 10, lz4",
    })
    void batchesOfPushesAreCompressedByWhatTheirPayloadsLeave(String payload, String given, String timeoutMs, String used) {
        Map<String, Object> config = Fakes.config(
                "payload.compression", payload, "producer.delivery.timeout.ms", timeoutMs);
        if (given != null) {
            config.put("client.telemetry.lander.producer.compression.type", given);
        }
        LanderSettings settings = read(config);

        assertEquals(used, settings.producer.get("compression.type"));
        assertEquals(timeoutMs.equals("10") ? 1 : 0, errors.size());
    }

    @ParameterizedTest
    @CsvSource({
        "queue.records, -5, 'int [1,...,10000000]', 10000",
        "queue.records, many, 'int [1,...,10000000]', 10000",
        "payload.compression, brotli, 'string [none, gzip, snappy, lz4, zstd]', none",
        "topic, a topic, 'string 1 to 249 of the characters a-z A-Z 0-9 . _ -', client-telemetry",
        "status.interval.ms, 0, 'long [100,...,3600000]', 10000",
        "header.max.bytes, 1048576, 'int [64,...,2048]', 1024",
        "close.timeout.ms, 5s, 'long [0,...,600000]', 5000",
    })
    void wrongValueIsNamedAndTheDefaultUsed(String key, String value, String allowed, String used) {
        LanderSettings settings = read(Fakes.config(key, value));

        assertEquals(
                List.of("client.telemetry.lander." + key + "=" + value + " is not allowed (allowed: " + allowed
                        + "); the default " + used + " is used"),
                errors);
        assertEquals(10_000, settings.queueRecords);
        assertEquals("none", settings.payloadCompression);
        assertEquals("client-telemetry", settings.topic);
        assertEquals(10_000, settings.statusIntervalMs);
        assertEquals(1024, settings.headerMaxBytes);
        assertEquals(5_000, settings.closeTimeoutMs);
    }

    @Test
    void queueMustHoldOnePayload() {
        LanderSettings settings = read(Fakes.config("queue.bytes", "1000", "payload.max.bytes", "5000"));

        assertEquals(5000 + 65536, settings.queueBytes);
        assertEquals(
                List.of("client.telemetry.lander.queue.bytes=1000 is not allowed "
                        + "(allowed: at least payload.max.bytes + 65536, 70536); 70536 is used"),
                errors);
    }

    @Test
    void unknownKeyIsNamed() {
        read(Fakes.config("que.records", "5"));

        assertEquals(1, errors.size());
        assertTrue(errors.get(0).startsWith("client.telemetry.lander.que.records is no setting (allowed: "), errors.get(0));
        assertTrue(errors.get(0).contains(", client.telemetry.lander.queue.records, "), errors.get(0));
        assertTrue(errors.get(0).endsWith("); it is ignored"), errors.get(0));
    }

    @Test
    void wrongProducerSettingsFallBackOneByOne() {
        LanderSettings settings = read(Fakes.config(
                "producer.linger.ms", "soon", "producer.compression.type", "snappy", "producer.acks", "1",
                "producer.sasl.login.connect.timeout.ms", "x"));

        assertEquals("50", settings.producer.get("linger.ms"));
        assertEquals("snappy", settings.producer.get("compression.type"));
        assertEquals("all", settings.producer.get("acks"));
        assertEquals(3, errors.size());
        assertTrue(errors.contains("client.telemetry.lander.producer.acks=1 is not allowed (allowed: all); all is used"));
        assertTrue(errors.stream().anyMatch(e -> e.startsWith("client.telemetry.lander.producer.linger.ms=soon is not allowed")));
    }

    @Test
    void passwordsAreNotLogged() {
        read(Fakes.config("producer.ssl.key.password", "secret", "producer.ssl.protocol", "TLSv1.3",
                "producer.retries", "0"));

        assertEquals(1, errors.size());
        assertFalse(errors.get(0).contains("secret"), errors.get(0));
    }

    @Test
    void producerSettingsThatContradictEachOtherAreLeftOutButSecurityStays() {
        LanderSettings settings = read(Fakes.config(
                "producer.delivery.timeout.ms", "1000", "producer.request.timeout.ms", "9000",
                "producer.security.protocol", "SSL"));

        assertEquals(
                List.of("client.telemetry.lander.producer.* do not fit together (delivery.timeout.ms 1000 is below "
                        + "linger.ms + request.timeout.ms 9050); only those of security.*, sasl.* and ssl.* are used"),
                errors);
        assertEquals(120_000, settings.producer.deliveryTimeoutMs());
        assertEquals("SSL", settings.producer.get("security.protocol"));
    }

    @Test
    void shorterDeliveryTimeoutTakesTheRequestTimeoutAlong() {
        LanderSettings settings = read(Fakes.config("producer.delivery.timeout.ms", "2000"));

        assertEquals(List.of(), errors);
        assertEquals("1950", settings.producer.get("request.timeout.ms"));
        settings.producer.create("accepted-by-kafka").close();
    }

    @Test
    void theManualNamesEverySetting() throws Exception {
        String manual = Files.readString(Path.of("..", "..", "docs", "receiver.md"));

        LanderSettings.definition(Map.of()).names()
                .forEach(name -> assertTrue(manual.contains("| `" + name + "` |"), "docs/receiver.md lacks " + name));
    }
}
