package io.github.kafkatelemetrylake.receiver;

import java.util.Collections;
import java.util.EnumMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAccumulator;
import java.util.concurrent.atomic.LongAdder;

/**
 * Counts pushes since the start. Lock-free, so that request threads never wait for a reader.
 *
 * <p>Each push is received once and then settled once, as landed or dropped. The queue depth is the difference, so a push
 * that is never settled shows as a queue depth that never returns to zero.
 */
final class Ledger {
    final long startedMs;
    private final AtomicLong received = new AtomicLong();
    private final AtomicLong landed = new AtomicLong();
    private final EnumMap<DropReason, AtomicLong> dropped = new EnumMap<>(DropReason.class);
    private final LongAdder requestNanos = new LongAdder();
    private final LongAdder requests = new LongAdder();
    private final LongAccumulator requestNanosMax = new LongAccumulator(Math::max, 0);

    Ledger(long startedMs) {
        this.startedMs = startedMs;
        for (DropReason reason : DropReason.values()) {
            dropped.put(reason, new AtomicLong());
        }
    }

    void received() {
        received.incrementAndGet();
    }

    void landed() {
        landed.incrementAndGet();
    }

    void dropped(DropReason reason) {
        dropped.get(reason).incrementAndGet();
    }

    /** Records the time of one push on the broker's request thread, in nanoseconds. */
    void requestTime(long nanos) {
        requestNanos.add(nanos);
        requests.increment();
        requestNanosMax.accumulate(nanos);
    }

    /** Mean time per push on the request thread, in microseconds. */
    double requestMicrosAvg() {
        long count = requests.sum();
        return count == 0 ? 0 : requestNanos.sum() / 1e3 / count;
    }

    /** Longest time of one push on the request thread, in microseconds. */
    double requestMicrosMax() {
        return requestNanosMax.get() / 1e3;
    }

    /** The counts at one moment. Settled pushes are read before received ones, so the difference is never negative. */
    Snapshot snapshot() {
        EnumMap<DropReason, Long> drops = new EnumMap<>(DropReason.class);
        dropped.forEach((reason, count) -> drops.put(reason, count.get()));
        long landedNow = landed.get();
        return new Snapshot(received.get(), landedNow, drops);
    }

    /** received = landed + dropped + queue depth, always. */
    static final class Snapshot {
        final long received;
        final long landed;
        final Map<DropReason, Long> dropped;

        Snapshot(long received, long landed, Map<DropReason, Long> dropped) {
            this.received = received;
            this.landed = landed;
            this.dropped = Collections.unmodifiableMap(dropped);
        }

        long droppedTotal() {
            return dropped.values().stream().mapToLong(Long::longValue).sum();
        }

        /** Queued, or in flight to the topic. */
        long queueDepth() {
            return received - landed - droppedTotal();
        }
    }
}
