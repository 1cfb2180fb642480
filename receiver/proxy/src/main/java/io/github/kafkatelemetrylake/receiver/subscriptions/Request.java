package io.github.kafkatelemetrylake.receiver.subscriptions;

import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.zip.CRC32C;
import org.apache.kafka.common.Uuid;

/** What all subscriptions together ask of one client: their metrics at the shortest of their intervals (KIP-714). */
final class Request {
    /** Prefixes, or {@code *} alone; empty: nothing. */
    final Set<String> metrics;
    final int pushIntervalMs;

    private Request(Set<String> metrics, int pushIntervalMs) {
        this.metrics = metrics;
        this.pushIntervalMs = pushIntervalMs;
    }

    static Request of(Collection<Subscription> subscriptions, Map<String, String> attributes) {
        Set<String> sorted = new TreeSet<>();
        int intervalMs = Subscription.DEFAULT_INTERVAL_MS;
        for (Subscription each : subscriptions) {
            if (each.matches(attributes)) {
                sorted.addAll(each.metrics);
                intervalMs = Math.min(intervalMs, each.intervalMs);
            }
        }
        if (sorted.contains(Subscription.ALL_METRICS)) {
            sorted.clear();
            sorted.add(Subscription.ALL_METRICS);
        }
        return new Request(inTheOrderOfBrokers(sorted), intervalMs);
    }

    /**
     * A HashSet's order, as brokers' subscription ids have it. Elements of one bucket stay in the order of insertion, which
     * is that of the names here: the result depends on the metrics alone.
     */
    private static Set<String> inTheOrderOfBrokers(Set<String> sorted) {
        Set<String> metrics = new HashSet<>();
        metrics.addAll(sorted);
        return metrics;
    }

    /**
     * The SubscriptionId: CRC32C of metrics and interval as text, XOR the hash of the client instance id.
     *
     * <p>A function of its arguments: each receiver with these subscriptions, also after a restart, knows the ids of others.
     */
    int subscriptionId(Uuid clientInstanceId) {
        CRC32C checksum = new CRC32C();
        checksum.update((metrics.toString() + pushIntervalMs).getBytes(StandardCharsets.UTF_8));
        return (int) checksum.getValue() ^ clientInstanceId.hashCode();
    }
}
