package io.github.kafkatelemetrylake.receiver;

import java.util.HashMap;
import java.util.Map;
import java.util.function.BiConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Settings of a lander's producers: its defaults, overridden by {@code client.telemetry.lander.producer.*}.
 *
 * <p>Some names are literals because Kafka 3.7's client, which ignores them, has no constant for them.
 */
final class ProducerSettings {
    private static final long BUFFER_BYTES = 32L * 1024 * 1024;
    /** For statuses and quota samples, which are small. */
    static final long SMALL_BUFFER_BYTES = 4L * 1024 * 1024;
    /** With this batch size a sweep of quota samples costs half the CPU of batches of 16 KiB. */
    private static final String BATCH_BYTES = "131072";
    private static final int REQUEST_TIMEOUT_MS = 30_000;

    /** Settings that the lander's guarantees depend on; they can't be overridden. */
    private static final Map<String, Object> FIXED = Map.of(
            ProducerConfig.ACKS_CONFIG, "all",
            ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, "true",
            "enable.metrics.push", "false",
            ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class.getName(),
            ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class.getName());

    private final Map<String, Object> config;
    private final Map<String, Object> ofPushes;

    /** Creates the settings; {@code pushCompression} is the compression type of pushes' batches unless one is configured. */
    ProducerSettings(
            String bootstrapServers,
            int maxRequestBytes,
            String pushCompression,
            Map<String, Object> overrides,
            BiConsumer<String, String> error) {
        Map<String, Object> defaults = new HashMap<>();
        defaults.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers);
        defaults.put(ProducerConfig.MAX_REQUEST_SIZE_CONFIG, String.valueOf(maxRequestBytes));
        defaults.put(ProducerConfig.BUFFER_MEMORY_CONFIG, String.valueOf(Math.max(BUFFER_BYTES, 2L * maxRequestBytes)));
        defaults.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, "zstd");
        defaults.put(ProducerConfig.LINGER_MS_CONFIG, "50");
        defaults.put(ProducerConfig.BATCH_SIZE_CONFIG, BATCH_BYTES);
        defaults.put(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, "120000");
        defaults.put(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG, String.valueOf(REQUEST_TIMEOUT_MS));
        // A missing topic blocks the lander's thread for this long at a time.
        defaults.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, "5000");
        defaults.put("metadata.recovery.strategy", "rebootstrap");
        defaults.putAll(FIXED);

        Map<String, Object> merged = new HashMap<>(defaults);
        Map<String, Object> allowed = allowed(overrides, error);
        merged.putAll(allowed);
        fitTimeouts(merged, overrides);
        try {
            Map<String, Object> checked = new HashMap<>(merged);
            checked.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, "localhost:9092");  // LanderSettings reports a missing one
            new ProducerConfig(checked);
            requireTimeoutsFit(merged);
        } catch (ConfigException e) {
            error.accept(LanderSettings.PREFIX + LanderSettings.PRODUCER_PREFIX + "* do not fit together ("
                    + e.getMessage() + ")", "only those of security.*, sasl.* and ssl.* are used");
            merged = defaults;
            for (Map.Entry<String, Object> entry : overrides.entrySet()) {
                if (entry.getKey().matches("(security|sasl|ssl)\\..*")) {
                    merged.put(entry.getKey(), entry.getValue());
                }
            }
        }
        config = merged;
        ofPushes = new HashMap<>(merged);
        if (merged == defaults || !allowed.containsKey(ProducerConfig.COMPRESSION_TYPE_CONFIG)) {
            ofPushes.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, pushCompression);
        }
    }

    /** A producer for pushes. Connects in the background; throws if no bootstrap address resolves. */
    Producer<byte[], byte[]> create(String clientId) {
        return create(ofPushes, Map.of(ProducerConfig.CLIENT_ID_CONFIG, clientId));
    }

    /** A producer for statuses and quota samples, which aren't worth a long wait because the next one replaces them. */
    Producer<byte[], byte[]> create(String clientId, long maxBlockMs) {
        return create(config, Map.of(
                ProducerConfig.CLIENT_ID_CONFIG, clientId,
                ProducerConfig.BUFFER_MEMORY_CONFIG, String.valueOf(SMALL_BUFFER_BYTES),
                ProducerConfig.BATCH_SIZE_CONFIG, BATCH_BYTES,
                ProducerConfig.MAX_BLOCK_MS_CONFIG, String.valueOf(maxBlockMs)));
    }

    private static Producer<byte[], byte[]> create(Map<String, Object> shared, Map<String, Object> own) {
        Map<String, Object> all = new HashMap<>(shared);
        all.putAll(own);
        return new KafkaProducer<>(all);
    }

    /** How long a push is retried before it counts as lost. */
    long deliveryTimeoutMs() {
        return number(config, ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG);
    }

    /** The effective value for pushes, as text. */
    String get(String name) {
        return String.valueOf(ofPushes.get(name));
    }

    private static Map<String, Object> allowed(Map<String, Object> overrides, BiConsumer<String, String> error) {
        Map<String, Object> allowed = new HashMap<>();
        Map<String, ConfigDef.ConfigKey> keys = ProducerConfig.configDef().configKeys();
        overrides.forEach((name, value) -> {
            ConfigDef.ConfigKey key = keys.get(name);
            String given = LanderSettings.PREFIX + LanderSettings.PRODUCER_PREFIX + name + "=" + value;  // secrets are never validated, so never logged
            if (FIXED.containsKey(name)) {
                if (!FIXED.get(name).equals(String.valueOf(value))) {
                    error.accept(given + " is not allowed (allowed: " + FIXED.get(name) + ")", FIXED.get(name) + " is used");
                }
                return;
            }
            try {
                if (key != null) {
                    Object parsed = ConfigDef.parseType(name, value, key.type);
                    if (key.validator != null) {
                        key.validator.ensureValid(name, parsed);
                    }
                }
                allowed.put(name, value);
            } catch (RuntimeException e) {
                error.accept(given + " is not allowed (" + e.getMessage() + ")", "the default is used");
            }
        });
        return allowed;
    }

    /** A shorter delivery timeout also shortens the request timeout, unless that was set too. */
    private static void fitTimeouts(Map<String, Object> merged, Map<String, Object> overrides) {
        if (!overrides.containsKey(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG)) {
            long room = number(merged, ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG) - number(merged, ProducerConfig.LINGER_MS_CONFIG);
            merged.put(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG, String.valueOf(Math.max(1, Math.min(REQUEST_TIMEOUT_MS, room))));
        }
    }

    /** KafkaProducer's own rule. It checks only when it is created, too late to be reported at the broker's start. */
    private static void requireTimeoutsFit(Map<String, Object> merged) {
        long delivery = number(merged, ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG);
        long least = number(merged, ProducerConfig.LINGER_MS_CONFIG) + number(merged, ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG);
        if (delivery < least) {
            throw new ConfigException("delivery.timeout.ms " + delivery + " is below linger.ms + request.timeout.ms " + least);
        }
    }

    private static long number(Map<String, Object> config, String name) {
        return Long.parseLong(String.valueOf(config.get(name)).trim());
    }
}
