package io.github.kafkatelemetrylake.receiver.subscriptions;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.apache.kafka.common.config.ConfigDef;

/** A client metrics subscription (KIP-714, "Client metrics configuration"): what is asked of the clients that match. */
public final class Subscription {
    /** In place of metrics' prefixes: all metrics. */
    public static final String ALL_METRICS = "*";
    public static final int DEFAULT_INTERVAL_MS = 300_000;
    public static final int LOWEST_INTERVAL_MS = 100;
    public static final int HIGHEST_INTERVAL_MS = 3_600_000;
    public static final List<String> MATCH_KEYS = List.of(
            "client_instance_id", "client_id", "client_software_name", "client_software_version",
            "client_source_address", "client_source_port");

    private static final List<String> CONFIG_KEYS = List.of("metrics", "interval.ms", "match");

    public final String name;
    /** Prefixes of metrics' names. */
    public final List<String> metrics;
    public final int intervalMs;
    private final Map<String, String> match;
    private final Map<String, Pattern> patterns = new LinkedHashMap<>();

    /**
     * Creates a subscription that brokers would accept.
     *
     * @param match Java regular expression by attribute; each must match the whole attribute
     * @throws IllegalArgumentException names subscription, key, value and what is allowed
     */
    public Subscription(String name, Collection<String> metrics, int intervalMs, Map<String, String> match) {
        require(name != null && !name.isEmpty(), "subscription: name: needed, got %s", name);
        require(intervalMs >= LOWEST_INTERVAL_MS && intervalMs <= HIGHEST_INTERVAL_MS,
                "subscription %s: interval.ms: got %s, allowed: %s to %s", name, intervalMs, LOWEST_INTERVAL_MS,
                HIGHEST_INTERVAL_MS);
        this.name = name;
        this.metrics = List.copyOf(metrics);
        this.intervalMs = intervalMs;
        this.match = new TreeMap<>(match);
        this.match.forEach((key, pattern) -> {
            require(MATCH_KEYS.contains(key), "subscription %s: match: got key %s, allowed: %s", name, key,
                    String.join(", ", MATCH_KEYS));
            try {
                patterns.put(key, Pattern.compile(pattern));
            } catch (PatternSyntaxException e) {
                throw new IllegalArgumentException(String.format(
                        "subscription %s: match: %s: got %s, allowed: a Java regular expression", name, key, pattern), e);
            }
        });
    }

    /**
     * Reads a resource CLIENT_METRICS of a broker as the broker does.
     *
     * @param config texts of {@code metrics}, {@code interval.ms} and {@code match}; a missing one has its default
     * @throws IllegalArgumentException names subscription, key, value and what is allowed
     */
    public static Subscription ofConfig(String name, Map<String, String> config) {
        config.keySet().forEach(key -> require(CONFIG_KEYS.contains(key), "subscription %s: got key %s, allowed: %s", name,
                key, String.join(", ", CONFIG_KEYS)));
        int intervalMs;
        try {
            intervalMs = (Integer) ConfigDef.parseType(
                    "interval.ms", config.getOrDefault("interval.ms", String.valueOf(DEFAULT_INTERVAL_MS)), ConfigDef.Type.INT);
        } catch (RuntimeException e) {
            throw new IllegalArgumentException("subscription " + name + ": " + e.getMessage(), e);
        }
        Map<String, String> match = new LinkedHashMap<>();
        for (String entry : list(config.get("match"))) {
            String[] parts = entry.split("=");
            require(parts.length == 2, "subscription %s: match: got %s, allowed: key=pattern with one '='", name, entry);
            match.put(parts[0].trim(), parts[1].trim());
        }
        return new Subscription(name, list(config.get("metrics")), intervalMs, match);
    }

    private static List<String> list(String text) {
        List<String> items = new ArrayList<>();
        for (Object item : (List<?>) ConfigDef.parseType("list", text == null ? "" : text, ConfigDef.Type.LIST)) {
            items.add((String) item);
        }
        return items;
    }

    /** Whether each pattern matches its whole attribute. An attribute that is unknown (null) matches none. */
    boolean matches(Map<String, String> attributes) {
        for (Map.Entry<String, Pattern> each : patterns.entrySet()) {
            String attribute = attributes.get(each.getKey());
            if (attribute == null || !each.getValue().matcher(attribute).matches()) {
                return false;
            }
        }
        return true;
    }

    /** Keys of attributes that it matches by. */
    public Collection<String> matchKeys() {
        return match.keySet();
    }

    @Override
    public boolean equals(Object other) {
        if (!(other instanceof Subscription)) {
            return false;
        }
        Subscription that = (Subscription) other;
        return name.equals(that.name) && metrics.equals(that.metrics) && intervalMs == that.intervalMs
                && match.equals(that.match);
    }

    @Override
    public int hashCode() {
        return Objects.hash(name, metrics, intervalMs, match);
    }

    @Override
    public String toString() {
        return name + " " + metrics + " " + intervalMs + " " + match;
    }

    private static void require(boolean holds, String message, Object... values) {
        if (!holds) {
            throw new IllegalArgumentException(String.format(message, values));
        }
    }
}
