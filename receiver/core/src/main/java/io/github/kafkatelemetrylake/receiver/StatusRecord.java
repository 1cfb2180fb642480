package io.github.kafkatelemetrylake.receiver;

import java.util.Map;
import java.util.stream.Collectors;

/** The status record's JSON: pushes received, landed and dropped since {@code started_ms}, and connections now. */
final class StatusRecord {
    static final int VERSION = 1;

    private StatusRecord() {}

    /**
     * Creates the JSON text. The counts are monotonic since {@code started_ms}, and
     * received = landed + sum(dropped) + queue_depth.
     *
     * @param connections a JSON array; null: they aren't known
     * @param timeMs time of the status, Unix milliseconds
     */
    static String json(
            BrokerIdentity broker,
            Ledger.Snapshot counts,
            QuotaCounts quotas,
            String connections,
            long startedMs,
            long timeMs) {
        String dropped = counts.dropped.entrySet().stream()
                .map((Map.Entry<DropReason, Long> e) -> "\"" + e.getKey() + "\":" + e.getValue())
                .collect(Collectors.joining(",", "{", "}"));
        return "{\"version\":" + VERSION
                + ",\"cluster_id\":" + text(broker.clusterId())
                + ",\"broker_id\":" + number(broker.brokerId())
                + ",\"time_ms\":" + timeMs
                + ",\"started_ms\":" + startedMs
                + ",\"received\":" + counts.received
                + ",\"landed\":" + counts.landed
                + ",\"dropped\":" + dropped
                + ",\"queue_depth\":" + counts.queueDepth()
                + ",\"quota_samples_landed\":" + quotas.landed()
                + ",\"quota_samples_lost\":" + quotas.lost()
                + (connections == null ? "" : ",\"connections\":" + connections) + "}";
    }

    /** Kafka's ids consist of letters, digits, - and _; other characters are omitted rather than escaped. */
    static String text(String id) {
        return id == null ? "null" : "\"" + id.replaceAll("[^A-Za-z0-9_.-]", "") + "\"";
    }

    static String number(String id) {
        return id != null && id.matches("\\d+") ? id : "null";
    }
}
