package io.github.kafkatelemetrylake.receiver.proxy;

import io.github.kafkatelemetrylake.receiver.LanderSettings;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/** The settings of one filter definition, read from its {@code config}. */
final class FilterSettings {
    private static final List<String> KEYS =
            List.of("landing", "name", "requireSasl", "subscriptions", "subscriptionsRefreshMs", "telemetryMaxBytes");
    private static final String BROKERS = "brokers";
    private static final int MIB = 1024 * 1024;

    /** Ends the client ids of the producers, and is in the name of the counters in JMX. */
    final String name;
    /** Whether telemetry is answered only on a connection on which the brokers have authenticated a client by SASL. */
    final boolean requireSasl;
    /** File of the subscriptions; null: those of the brokers. */
    final Path subscriptionsFile;
    final long subscriptionsRefreshMs;
    final int telemetryMaxBytes;
    final LanderSettings lander;
    /** Client settings with which the brokers are asked for subscriptions. */
    final Map<String, Object> adminConfig = new HashMap<>();

    /**
     * Checks a configuration.
     *
     * @throws IllegalArgumentException names what is wrong and what is allowed, in one line
     */
    FilterSettings(FilterConfig config) {
        if (config == null || config.values().isEmpty()) {
            throw new IllegalArgumentException("the filter has no config; it needs subscriptions and landing");
        }
        Map<String, Object> values = config.values();
        for (String key : new TreeSet<>(values.keySet())) {
            if (!KEYS.contains(key)) {
                throw wrong(key, "is no setting", String.join(", ", KEYS));
            }
        }
        name = text(values, "name", "proxy");
        requireSasl = bool(values.get("requireSasl"));
        String subscriptions = text(values, "subscriptions", "");
        if (subscriptions.isEmpty()) {
            throw wrong("subscriptions", "is needed", "a path of a YAML file, or " + BROKERS);
        }
        subscriptionsFile = subscriptions.equals(BROKERS) ? null : Path.of(subscriptions);
        subscriptionsRefreshMs = number(values, "subscriptionsRefreshMs", 5_000, 100, 3_600_000);
        telemetryMaxBytes = (int) number(values, "telemetryMaxBytes", MIB, 1, 512L * MIB);
        lander = lander(values.get("landing"));
    }

    private LanderSettings lander(Object landing) {
        if (!(landing instanceof Map) || ((Map<?, ?>) landing).get("bootstrap.servers") == null) {
            throw wrong("landing", "is needed", "bootstrap.servers and other settings of the lander, without prefix");
        }
        for (Object key : ((Map<?, ?>) landing).keySet()) {
            if (key.toString().startsWith("quotas.")) {
                throw wrong("landing", key + " is for brokers, whose quotas a proxy doesn't see", "the lander's other settings");
            }
        }
        Map<String, Object> prefixed = new HashMap<>();
        prefixed.put("telemetry.max.bytes", String.valueOf(telemetryMaxBytes));
        ((Map<?, ?>) landing).forEach((key, value) -> prefixed.put(LanderSettings.PREFIX + key, String.valueOf(value)));
        List<String> errors = new ArrayList<>();
        LanderSettings settings = new LanderSettings(prefixed, (problem, effect) -> errors.add(problem));
        if (!errors.isEmpty()) {
            throw new IllegalArgumentException(String.join("; ", errors).replace(LanderSettings.PREFIX, "landing: "));
        }
        ((Map<?, ?>) landing).forEach((key, value) -> {
            String[] parts = key.toString().split("\\.", 2);
            if (parts[0].equals("producer") && parts[1].matches("(security|sasl|ssl)\\..*")) {
                adminConfig.put(parts[1], value);
            }
        });
        adminConfig.put("bootstrap.servers", ((Map<?, ?>) landing).get("bootstrap.servers"));
        return settings;
    }

    private static boolean bool(Object value) {
        if (value == null || value instanceof Boolean) {
            return value == null || (Boolean) value;
        }
        throw wrong("requireSasl", "got " + value, "true, false");
    }

    private static String text(Map<String, Object> values, String key, String otherwise) {
        Object value = values.getOrDefault(key, otherwise);
        if (value instanceof String) {
            return (String) value;
        }
        throw wrong(key, "got " + value, "text");
    }

    private static long number(Map<String, Object> values, String key, long otherwise, long least, long most) {
        Object value = values.getOrDefault(key, otherwise);
        if ((value instanceof Integer || value instanceof Long)
                && ((Number) value).longValue() >= least && ((Number) value).longValue() <= most) {
            return ((Number) value).longValue();
        }
        throw wrong(key, "got " + value, least + " to " + most);
    }

    private static IllegalArgumentException wrong(String key, String problem, String allowed) {
        return new IllegalArgumentException(key + ": " + problem + " (allowed: " + allowed + ")");
    }
}
