package io.github.kafkatelemetrylake.receiver;

import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Collection;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.function.BiConsumer;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.ConfigKey;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.ValidString;
import org.apache.kafka.common.config.ConfigException;

/**
 * A lander's settings, as keys {@code client.telemetry.lander.*} among those of the broker that it runs in, if it does.
 *
 * <p>An invalid value throws nothing: one error names its key, the value and the allowed values, and the default is there.
 */
public final class LanderSettings {
    public static final String PREFIX = "client.telemetry.lander.";
    static final String PRODUCER_PREFIX = "producer.";
    /** Room for key, headers and framing around the largest payload. */
    static final int RECORD_HEADROOM_BYTES = 64 * 1024;

    private static final int MIB = 1024 * 1024;
    private static final int DEFAULT_TELEMETRY_MAX_BYTES = MIB;  // Kafka's MetricConfigs
    private static final int MAX_PAYLOAD_BYTES = 512 * MIB;
    private static final Pattern TOPIC = Pattern.compile("(?!\\.{1,2}$)[a-zA-Z0-9._-]{1,249}");

    final String topic;
    final String statusTopic;
    final int queueRecords;
    final long queueBytes;
    final int payloadMaxBytes;
    final String payloadCompression;
    final int headerMaxBytes;
    final long statusIntervalMs;
    final long closeTimeoutMs;
    final boolean quotasEnabled;
    final String quotasTopic;
    final long quotasIntervalMs;
    /** File for a last status that could not land, for the next start; null: none. */
    final Path statusFile;
    final ProducerSettings producer;

    /**
     * Reads the settings.
     *
     * @param brokerConfig the broker's properties as passed to {@code MetricsReporter.configure}, or the settings alone
     * @param error receives for each invalid setting what is wrong and allowed, and what is used in its place
     */
    public LanderSettings(Map<String, ?> brokerConfig, BiConsumer<String, String> error) {
        Map<String, Object> own = new HashMap<>();
        Map<String, Object> producerOverrides = new HashMap<>();
        brokerConfig.forEach((key, value) -> {
            if (key.startsWith(PREFIX + PRODUCER_PREFIX)) {
                producerOverrides.put(key.substring(PREFIX.length() + PRODUCER_PREFIX.length()), value);
            } else if (key.startsWith(PREFIX)) {
                own.put(key.substring(PREFIX.length()), value);
            }
        });
        ConfigDef definition = definition(brokerConfig);
        own.keySet().stream().filter(key -> !definition.names().contains(key)).sorted().forEach(key -> error.accept(
                PREFIX + key + " is no setting (allowed: " + definition.names().stream()
                        .sorted().map(name -> PREFIX + name).collect(Collectors.joining(", ")) + ")", "it is ignored"));
        Map<String, Object> values = new HashMap<>();
        definition.configKeys().values().forEach(key -> values.put(key.name, value(key, own, error)));

        topic = (String) values.get("topic");
        statusTopic = (String) values.get("status.topic");
        queueRecords = (Integer) values.get("queue.records");
        payloadMaxBytes = (Integer) values.get("payload.max.bytes");
        queueBytes = queueBytes((Long) values.get("queue.bytes"), payloadMaxBytes, error);
        payloadCompression = (String) values.get("payload.compression");
        headerMaxBytes = (Integer) values.get("header.max.bytes");
        statusIntervalMs = (Long) values.get("status.interval.ms");
        closeTimeoutMs = (Long) values.get("close.timeout.ms");
        quotasEnabled = (Boolean) values.get("quotas.enabled");
        quotasTopic = (String) values.get("quotas.topic");
        quotasIntervalMs = (Long) values.get("quotas.interval.ms");
        String file = (String) values.get("status.file");
        statusFile = file.isEmpty() ? null : Paths.get(file);
        String bootstrapServers = (String) values.get("bootstrap.servers");
        if (bootstrapServers.isBlank()) {
            error.accept(PREFIX + "bootstrap.servers is needed, no listener of this broker is PLAINTEXT (allowed: host:port,..."
                    + " with security settings under " + PREFIX + PRODUCER_PREFIX + "*)", "nothing lands without it");
        }
        // Batches of compressed payloads: zstd costs three times as much as lz4 and finds no more than lz4 does.
        String pushCompression = payloadCompression.equals(PayloadCompression.NONE) ? "zstd" : "lz4";
        producer = new ProducerSettings(
                bootstrapServers, payloadMaxBytes + RECORD_HEADROOM_BYTES, pushCompression, producerOverrides, error);
    }

    /** Keys (without prefix), types, defaults, limits and documentation. Some defaults depend on the broker's own settings. */
    static ConfigDef definition(Map<String, ?> brokerConfig) {
        int payloadMaxBytes = Math.max(telemetryMaxBytes(brokerConfig), 16 * MIB);
        ConfigDef.Validator topicName = ConfigDef.LambdaValidator.with(
                LanderSettings::requireTopicName, () -> "1 to 249 of the characters a-z A-Z 0-9 . _ -");
        ConfigDef.Validator path = ConfigDef.LambdaValidator.with((key, value) -> Paths.get((String) value), () -> "a path");
        return new ConfigDef()
                .define("topic", Type.STRING, "client-telemetry", topicName, Importance.HIGH,
                        "Topic of the landed pushes.")
                .define("status.topic", Type.STRING, "client-telemetry-status", topicName, Importance.HIGH,
                        "Topic of the status records.")
                .define("bootstrap.servers", Type.STRING, BrokerListeners.plaintext(brokerConfig).orElse(""),
                        Importance.HIGH, "Addresses at which the producers connect. Required if no listener of the "
                                + "broker is PLAINTEXT, with the security settings under producer.*")
                .define("queue.records", Type.INT, 10_000, Range.between(1, 10_000_000), Importance.MEDIUM,
                        "Maximum number of queued and in-flight pushes; further ones are dropped.")
                .define("queue.bytes", Type.LONG, Math.max(64L * MIB, 2L * payloadMaxBytes), Range.atLeast(1),
                        Importance.MEDIUM, "Maximum heap of queued and in-flight pushes: payload, strings and 3 KiB each.")
                .define("payload.max.bytes", Type.INT, payloadMaxBytes, Range.between(1, MAX_PAYLOAD_BYTES),
                        Importance.MEDIUM, "A push with a larger payload lands as headers only. The producer's "
                                + "max.request.size is derived from this.")
                .define("payload.compression", Type.STRING, PayloadCompression.NONE,
                        ValidString.in(PayloadCompression.CODECS.toArray(new String[0])), Importance.LOW,
                        "Compresses each record's value that gets smaller by it, besides the batch's compression.type.")
                .define("header.max.bytes", Type.INT, 1024, Range.between(64, RECORD_HEADROOM_BYTES / 32),
                        Importance.LOW, "A longer header value, such as a client id, is truncated to this.")
                .define("status.interval.ms", Type.LONG, 10_000L, Range.between(100, 3_600_000), Importance.MEDIUM,
                        "Time between two status records.")
                .define("quotas.enabled", Type.BOOLEAN, true, Importance.MEDIUM,
                        "Whether a broker's client quota sensors are sampled.")
                .define("quotas.topic", Type.STRING, "client-quotas", topicName, Importance.HIGH,
                        "Topic of the quota samples.")
                .define("quotas.interval.ms", Type.LONG, 10_000L, Range.between(100, 3_600_000), Importance.MEDIUM,
                        "Time between two samples of a quota sensor.")
                .define("close.timeout.ms", Type.LONG, 5_000L, Range.between(0, 600_000), Importance.MEDIUM,
                        "How long a stopping receiver waits for the queue to drain.")
                .define("status.file", Type.STRING, statusFile(brokerConfig), path, Importance.LOW,
                        "File for a last status that could not land; the next start lands it. Empty: none.");
    }

    private static Object value(ConfigKey key, Map<String, Object> own, BiConsumer<String, String> error) {
        Object given = own.get(key.name);
        if (given == null) {
            return key.defaultValue;
        }
        try {
            Object value = ConfigDef.parseType(key.name, given, key.type);
            if (key.validator != null) {
                key.validator.ensureValid(key.name, value);
            }
            return value;
        } catch (RuntimeException e) {
            String bounds = key.validator == null ? "" : " " + key.validator;
            error.accept(PREFIX + key.name + "=" + given + " is not allowed (allowed: " + key.type.name().toLowerCase(
                    Locale.ROOT) + bounds + ")", "the default " + key.defaultValue + " is used");
            return key.defaultValue;
        }
    }

    private static long queueBytes(long given, int payloadMaxBytes, BiConsumer<String, String> error) {
        long least = (long) payloadMaxBytes + RECORD_HEADROOM_BYTES;
        if (given < least) {
            error.accept(PREFIX + "queue.bytes=" + given + " is not allowed (allowed: at least payload.max.bytes + "
                    + RECORD_HEADROOM_BYTES + ", " + least + ")", least + " is used");
            return least;
        }
        return given;
    }

    private static void requireTopicName(String key, Object value) {
        if (!TOPIC.matcher((String) value).matches()) {
            throw new ConfigException(key, value);
        }
    }

    /** The broker's own limit; the broker itself rejects an invalid one at its start. */
    private static int telemetryMaxBytes(Map<String, ?> brokerConfig) {
        try {
            return brokerText(brokerConfig, "telemetry.max.bytes")
                    .map(value -> Math.min(MAX_PAYLOAD_BYTES, Integer.parseInt(value.trim())))
                    .orElse(DEFAULT_TELEMETRY_MAX_BYTES);
        } catch (NumberFormatException e) {
            return DEFAULT_TELEMETRY_MAX_BYTES;
        }
    }

    /** A file in the broker's first log directory, which survives restarts. */
    private static String statusFile(Map<String, ?> brokerConfig) {
        return brokerText(brokerConfig, "log.dirs").or(() -> brokerText(brokerConfig, "log.dir"))
                .map(dirs -> Paths.get(dirs.split(",")[0].trim(), "client-telemetry-lander.json").toString())
                .orElse("");
    }

    /** A broker property as in its file. A broker passes strings at its start, and parsed values, such as lists, later. */
    static Optional<String> brokerText(Map<String, ?> brokerConfig, String key) {
        Object value = brokerConfig.get(key);
        if (value instanceof Collection) {
            return Optional.of(((Collection<?>) value).stream().map(String::valueOf).collect(Collectors.joining(",")));
        }
        return Optional.ofNullable(value).map(Object::toString);
    }
}
