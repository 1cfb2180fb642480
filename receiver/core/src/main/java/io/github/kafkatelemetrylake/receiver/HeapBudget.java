package io.github.kafkatelemetrylake.receiver;

import java.util.concurrent.atomic.AtomicLong;

/**
 * Limits the broker's heap that records use from their creation to their acknowledgement or failure. Lock-free.
 *
 * <p>The creator of a record reserves its bytes first, and releases the same number after it is settled.
 */
final class HeapBudget {
    private final long maxRecords;
    private final long maxBytes;
    private final AtomicLong records = new AtomicLong();
    private final AtomicLong bytes = new AtomicLong();

    HeapBudget(long maxRecords, long maxBytes) {
        this.maxRecords = maxRecords;
        this.maxBytes = maxBytes;
    }

    /** Reserves room for one record; returns false and reserves nothing if there is none. */
    boolean reserve(long recordBytes) {
        if (!add(records, 1, maxRecords)) {
            return false;
        }
        if (!add(bytes, recordBytes, maxBytes)) {
            records.decrementAndGet();
            return false;
        }
        return true;
    }

    /** Reserves more bytes for a record that has a reservation; returns false and reserves nothing if there is no room. */
    boolean grow(long moreBytes) {
        return add(bytes, moreBytes, maxBytes);
    }

    /** Releases a part of a record's bytes. */
    void shrink(long fewerBytes) {
        bytes.addAndGet(-fewerBytes);
    }

    /** Releases a record and its bytes. */
    void release(long recordBytes) {
        bytes.addAndGet(-recordBytes);
        records.decrementAndGet();
    }

    long records() {
        return records.get();
    }

    long bytes() {
        return bytes.get();
    }

    private static boolean add(AtomicLong count, long by, long bound) {
        while (true) {
            long now = count.get();
            if (now + by > bound) {
                return false;
            }
            if (count.compareAndSet(now, now + by)) {
                return true;
            }
        }
    }
}
