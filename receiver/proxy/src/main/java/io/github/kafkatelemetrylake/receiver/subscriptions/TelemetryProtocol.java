package io.github.kafkatelemetrylake.receiver.subscriptions;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.LongSupplier;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Errors;

/**
 * Answers GetTelemetrySubscriptions and PushTelemetry as a broker does (KIP-714; ClientMetricsManager of Apache Kafka).
 *
 * <p>It knows client instances of the process, not of a connection: a client has one connection per broker. An instance is
 * forgotten when it has asked nothing for three intervals, at least a minute. All methods are thread-safe and none waits
 * for anything but another of them.
 */
public final class TelemetryProtocol {
    /** As brokers offer them: zstd, lz4, gzip, snappy. */
    public static final List<Byte> ACCEPTED_COMPRESSION_TYPES = List.of((byte) 4, (byte) 3, (byte) 1, (byte) 2);

    static final long LEAST_EXPIRY_MS = 60_000;
    private static final int HIGHEST_COMPRESSION_TYPE = 4;
    private static final String ALL_METRICS_AS_PREFIX = "org.apache.kafka.";

    private final int telemetryMaxBytes;
    private final int maxInstances;
    private final LongSupplier clockMs;
    private final Map<Uuid, ClientInstance> instances;
    private List<Subscription> subscriptions = List.of();
    private int version;
    private long nextSweepMs;

    /**
     * Creates a protocol without subscriptions.
     *
     * @param telemetryMaxBytes size of the largest push, in bytes as the client sends it
     * @param maxInstances more client instances push out those that were silent longest
     * @param clockMs never goes back
     */
    public TelemetryProtocol(int telemetryMaxBytes, int maxInstances, LongSupplier clockMs) {
        this.telemetryMaxBytes = telemetryMaxBytes;
        this.maxInstances = maxInstances;
        this.clockMs = clockMs;
        instances = new LinkedHashMap<>(16, 0.75f, true) {
            private static final long serialVersionUID = 1L;

            @Override
            protected boolean removeEldestEntry(Map.Entry<Uuid, ClientInstance> eldest) {
                return size() > TelemetryProtocol.this.maxInstances;
            }
        };
        nextSweepMs = clockMs.getAsLong() + LEAST_EXPIRY_MS;
    }

    /** Replaces the subscriptions; false if they are those that there were. Each client learns it at its next request. */
    public synchronized boolean subscribe(Collection<Subscription> all) {
        List<Subscription> changed = List.copyOf(all);
        if (changed.equals(subscriptions)) {
            return false;
        }
        subscriptions = changed;
        version++;
        return true;
    }

    /** Number of client instances that are remembered. */
    public synchronized int instances() {
        return instances.size();
    }

    /** Answers GetTelemetrySubscriptions; the zero UUID asks for an id. */
    public synchronized SubscriptionsAnswer get(Uuid clientInstanceId, TelemetryClient client) {
        Uuid id = clientInstanceId == null || clientInstanceId.equals(Uuid.ZERO_UUID) ? unused() : clientInstanceId;
        long now = clockMs.getAsLong();
        ClientInstance instance = instance(id, client, now);
        if (!instance.mayGet(now)) {
            return new SubscriptionsAnswer(Errors.THROTTLING_QUOTA_EXCEEDED, Uuid.ZERO_UUID, 0, List.of(), 0, 0);
        }
        instance.lastError = Errors.NONE;
        List<String> metrics = new ArrayList<>(instance.request.metrics);
        if (metrics.contains(Subscription.ALL_METRICS) && instance.client.takesAllMetricsLiterally()) {
            metrics = List.of(ALL_METRICS_AS_PREFIX);
        }
        return new SubscriptionsAnswer(Errors.NONE, id, instance.subscriptionId, metrics, instance.request.pushIntervalMs, telemetryMaxBytes);
    }

    /**
     * Answers PushTelemetry.
     *
     * @param metricsBytes size of the metrics as the client sent them
     * @return the answer; a push that is not refused is to be landed
     */
    public synchronized PushAnswer push(
            Uuid clientInstanceId,
            TelemetryClient client,
            int subscriptionId,
            boolean terminating,
            int compressionType,
            int metricsBytes) {
        if (clientInstanceId == null || Uuid.RESERVED.contains(clientInstanceId)) {
            return new PushAnswer(Errors.INVALID_REQUEST, 0);
        }
        long now = clockMs.getAsLong();
        ClientInstance instance = instance(clientInstanceId, client, now);
        Errors error = refused(instance, now, subscriptionId, terminating, compressionType, metricsBytes);
        instance.terminating = terminating;
        instance.lastError = error;
        return new PushAnswer(error, instance.request.pushIntervalMs);
    }

    private Errors refused(
            ClientInstance instance,
            long now,
            int subscriptionId,
            boolean terminating,
            int compressionType,
            int metricsBytes) {
        if (instance.terminating) {
            return Errors.INVALID_REQUEST;
        }
        if (!instance.mayPush(now) && !terminating) {
            return Errors.THROTTLING_QUOTA_EXCEEDED;
        }
        if (subscriptionId != instance.subscriptionId) {
            return Errors.UNKNOWN_SUBSCRIPTION_ID;
        }
        if (compressionType < 0 || compressionType > HIGHEST_COMPRESSION_TYPE) {
            return Errors.UNSUPPORTED_COMPRESSION_TYPE;
        }
        return metricsBytes > telemetryMaxBytes ? Errors.TELEMETRY_TOO_LARGE : Errors.NONE;
    }

    private Uuid unused() {
        Uuid id = Uuid.randomUuid();
        while (instances.containsKey(id)) {
            id = Uuid.randomUuid();
        }
        return id;
    }

    private ClientInstance instance(Uuid id, TelemetryClient client, long now) {
        sweep(now);
        ClientInstance known = instances.get(id);
        if (known != null && known.expiresAtMs <= now) {
            known = null;
        }
        if (known == null || known.version < version) {
            TelemetryClient asked = known == null ? client : known.client;
            known = new ClientInstance(id, asked, Request.of(subscriptions, asked.attributes(id)), version);
            instances.put(id, known);
        }
        known.expiresAtMs = now + Math.max(LEAST_EXPIRY_MS, 3L * known.request.pushIntervalMs);
        return known;
    }

    private void sweep(long now) {
        if (now >= nextSweepMs) {
            nextSweepMs = now + LEAST_EXPIRY_MS;
            instances.values().removeIf(each -> each.expiresAtMs <= now);
        }
    }

    /** The answer to GetTelemetrySubscriptions. With an error the other fields are zero or empty. */
    public static final class SubscriptionsAnswer {
        public final Errors error;
        public final Uuid clientInstanceId;
        public final int subscriptionId;
        public final List<String> requestedMetrics;
        public final int pushIntervalMs;
        public final int telemetryMaxBytes;

        SubscriptionsAnswer(
                Errors error,
                Uuid clientInstanceId,
                int subscriptionId,
                List<String> requestedMetrics,
                int pushIntervalMs,
                int telemetryMaxBytes) {
            this.error = error;
            this.clientInstanceId = clientInstanceId;
            this.subscriptionId = subscriptionId;
            this.requestedMetrics = requestedMetrics;
            this.pushIntervalMs = pushIntervalMs;
            this.telemetryMaxBytes = telemetryMaxBytes;
        }
    }

    /** The answer to PushTelemetry, and the push interval in force in milliseconds; 0 if the client instance is none. */
    public static final class PushAnswer {
        public final Errors error;
        public final int pushIntervalMs;

        PushAnswer(Errors error, int pushIntervalMs) {
            this.error = error;
            this.pushIntervalMs = pushIntervalMs;
        }
    }
}
