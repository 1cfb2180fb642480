package io.github.kafkatelemetrylake.receiver;

import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/** Requests, payloads, settings and producers for tests. */
final class Fakes {
    static final Uuid INSTANCE = Uuid.fromString("jHecHqLPQj2rnaP7QRzrmg");
    static final int CORRELATION_ID = 77;

    private Fakes() {}

    /** The request context that a real broker passes. */
    static AuthorizableRequestContext context(String clientId) {
        return context(clientId, "apache-kafka-java");
    }

    static AuthorizableRequestContext context(String clientId, String softwareName) {
        return new RequestContext(
                new RequestHeader(ApiKeys.PUSH_TELEMETRY, (short) 0, clientId, CORRELATION_ID),
                "127.0.0.1:9092-127.0.0.1:40088-1",
                InetAddress.getLoopbackAddress(),
                Optional.of(40088),
                new KafkaPrincipal(KafkaPrincipal.USER_TYPE, "ann"),
                new ListenerName("EXTERNAL"),
                SecurityProtocol.SASL_SSL,
                new ClientInformation(softwareName, "4.3.1"),
                false);
    }

    static ClientTelemetryPayload payload(byte[] bytes) {
        return payload(ByteBuffer.wrap(bytes));
    }

    static ClientTelemetryPayload payload(ByteBuffer data) {
        return new Payload(data);
    }

    static Push push(
            AuthorizableRequestContext context, ClientTelemetryPayload payload, Integer pushIntervalMs, int headerMaxBytes) {
        PushRequest request = new BrokerPush(payload, () -> context, () -> pushIntervalMs);
        return new Push(request.details(), request.data(), true, headerMaxBytes);
    }

    /** As a stock broker passes it. */
    static class Payload implements ClientTelemetryPayload {
        private final ByteBuffer data;

        Payload(ByteBuffer data) {
            this.data = data;
        }

        @Override
        public Uuid clientInstanceId() {
            return INSTANCE;
        }

        @Override
        public boolean isTerminating() {
            return true;
        }

        @Override
        public String contentType() {
            return "OTLP";
        }

        @Override
        public ByteBuffer data() {
            return data;
        }
    }

    static LanderSettings settings(String... keysAndValues) {
        List<String> errors = new ArrayList<>();
        LanderSettings settings = new LanderSettings(config(keysAndValues), (problem, effect) -> errors.add(problem + "; " + effect));
        if (!errors.isEmpty()) {
            throw new IllegalArgumentException(errors.toString());
        }
        return settings;
    }

    /** Broker properties with the plugin's keys, given without their prefix. */
    static Map<String, Object> config(String... keysAndValues) {
        Map<String, Object> config = new HashMap<>();
        config.put("listeners", "PLAINTEXT://:9092");
        for (int i = 0; i < keysAndValues.length; i += 2) {
            config.put(LanderSettings.PREFIX + keysAndValues[i], keysAndValues[i + 1]);
        }
        return config;
    }

    static BrokerIdentity broker() {
        BrokerIdentity broker = new BrokerIdentity();
        broker.brokerId("1");
        broker.clusterId("3av1eYO0TP6eJFWzDROMnQ");
        return broker;
    }

    static MockProducer<byte[], byte[]> mockProducer(boolean autoComplete) {
        return new MockProducer<>(autoComplete, null, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static Map<String, String> headers(ProducerRecord<byte[], byte[]> record) {
        Map<String, String> headers = new LinkedHashMap<>();
        for (Header header : record.headers()) {
            headers.put(header.key(), new String(header.value(), StandardCharsets.UTF_8));
        }
        return headers;
    }

    /** Registers metrics with a sampler, as the plugin does. */
    static final class Reporter implements MetricsReporter {
        private final QuotaSampler sampler;

        Reporter(QuotaSampler sampler) {
            this.sampler = sampler;
        }

        @Override
        public void init(List<KafkaMetric> metrics) {
            metrics.forEach(this::metricChange);
        }

        @Override
        public void metricChange(KafkaMetric metric) {
            sampler.metricChanged(metric);
        }

        @Override
        public void metricRemoval(KafkaMetric metric) {
            sampler.metricRemoved(metric);
        }

        @Override
        public void close() {}

        @Override
        public void configure(Map<String, ?> configs) {}
    }

    /** A lander over one producer, with its ledger. */
    static final class Rig {
        final Ledger ledger = new Ledger(1_000);
        final Lander lander;

        Rig(LanderSettings settings, Producer<byte[], byte[]> producer) {
            lander = new Lander(settings, broker(), ledger, () -> producer);
        }

        void push(byte[] bytes) {
            lander.accept(new BrokerPush(payload(bytes), () -> context("app"), () -> 30_000));
        }

        long dropped(DropReason reason) {
            return ledger.snapshot().dropped.get(reason);
        }
    }

    /** The condition ends the wait; its time ends what hangs. */
    static void await(BooleanSupplier condition) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(600);
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not within 600 s");
            }
            Thread.sleep(5);
        }
    }
}
