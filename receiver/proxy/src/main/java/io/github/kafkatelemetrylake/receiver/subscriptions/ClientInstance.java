package io.github.kafkatelemetrylake.receiver.subscriptions;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Errors;

/** What a receiver remembers of one client instance. Not thread-safe. Times are milliseconds of the receiver's clock. */
final class ClientInstance {
    /** Longer ago than any interval. */
    private static final long NEVER = Long.MIN_VALUE / 4;

    final TelemetryClient client;
    final Request request;
    final int subscriptionId;
    /** Of the subscriptions that the request is made of. */
    final int version;
    boolean terminating;
    Errors lastError = Errors.NONE;
    long expiresAtMs;

    private long lastGetMs = NEVER;
    private long lastPushMs = NEVER;

    ClientInstance(Uuid id, TelemetryClient client, Request request, int version) {
        this.client = client;
        this.request = request;
        this.version = version;
        subscriptionId = request.subscriptionId(id);
    }

    /** Whether it may ask: an interval after its last request, or at once after errors that tell it to ask. */
    boolean mayGet(long nowMs) {
        if (nowMs - Math.max(lastGetMs, lastPushMs) >= request.pushIntervalMs) {
            lastGetMs = nowMs;
            return true;
        }
        return lastError == Errors.UNKNOWN_SUBSCRIPTION_ID || lastError == Errors.UNSUPPORTED_COMPRESSION_TYPE;
    }

    /**
     * Whether it may push: an interval after its last push. So it may at once after an answer, which it gets only then: clients
     * jitter that push to half an interval to one and a half.
     */
    boolean mayPush(long nowMs) {
        boolean may = nowMs - lastPushMs >= request.pushIntervalMs;
        if (may) {
            lastPushMs = nowMs;
        }
        return may;
    }
}
