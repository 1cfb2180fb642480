package io.github.kafkatelemetrylake.receiver.proxy;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.dataformat.yaml.YAMLFactory;
import io.github.kafkatelemetrylake.receiver.subscriptions.Subscription;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Subscriptions in the YAML file that {@code telemetry-lake sync --subscriptions-file} reads. */
final class SubscriptionsFile implements SubscriptionSource.Reader {
    private static final Set<String> FILE_KEYS = Set.of("cluster_id", "subscriptions");
    private static final Set<String> ENTRY_KEYS = Set.of("name", "metrics", "interval_ms", "match");

    private final ObjectMapper yaml = new ObjectMapper(new YAMLFactory());
    private final Path path;

    SubscriptionsFile(Path path) {
        this.path = path;
    }

    /** Throws IllegalArgumentException, whose message names file, key, value and what is allowed. */
    @Override
    public List<Subscription> read() throws IOException {
        JsonNode content;
        try {
            content = yaml.readTree(Files.readAllBytes(path));
        } catch (NoSuchFileException e) {
            throw new IllegalArgumentException(path + ": No such file", e);
        } catch (JsonProcessingException e) {
            throw new IllegalArgumentException(path + ": not YAML: " + e.getOriginalMessage().lines().findFirst().orElse(""), e);
        }
        require(content != null && content.path("subscriptions").isArray(), "subscriptions", "a list");
        keys(content, FILE_KEYS);
        List<Subscription> all = new ArrayList<>();
        Set<String> names = new HashSet<>();
        for (JsonNode each : content.get("subscriptions")) {
            Subscription read = subscription(each);
            require(names.add(read.name), "subscription " + read.name, "each name once");
            all.add(read);
        }
        return all;
    }

    private Subscription subscription(JsonNode entry) {
        require(entry.isObject(), "subscriptions", "entries of name, metrics, interval_ms, match");
        keys(entry, ENTRY_KEYS);
        require(entry.path("name").isTextual(), "name", "text");
        require(entry.path("metrics").isArray(), "metrics", "a list of prefixes");
        require(!entry.has("interval_ms") || entry.get("interval_ms").isInt(), "interval_ms", "a whole number");
        require(!entry.has("match") || entry.get("match").isObject(), "match", "attribute: Java regular expression");
        List<String> metrics = new ArrayList<>();
        entry.get("metrics").forEach(each -> {
            require(each.isTextual(), "metrics", "a list of prefixes");
            metrics.add(each.textValue());
        });
        Map<String, String> match = new LinkedHashMap<>();
        for (Iterator<Map.Entry<String, JsonNode>> each = entry.path("match").fields(); each.hasNext();) {
            Map.Entry<String, JsonNode> pattern = each.next();
            require(pattern.getValue().isTextual(), "match: " + pattern.getKey(), "text");
            match.put(pattern.getKey(), pattern.getValue().textValue());
        }
        try {
            return new Subscription(entry.get("name").textValue(), metrics,
                    entry.path("interval_ms").asInt(Subscription.DEFAULT_INTERVAL_MS), match);
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException(path + ": " + e.getMessage(), e);
        }
    }

    private void keys(JsonNode node, Set<String> known) {
        node.fieldNames().forEachRemaining(key -> require(known.contains(key), key, String.join(", ", known)));
    }

    private void require(boolean holds, String key, String allowed) {
        if (!holds) {
            throw new IllegalArgumentException(path + ": " + key + ": allowed: " + allowed);
        }
    }

    @Override
    public void close() {}
}
