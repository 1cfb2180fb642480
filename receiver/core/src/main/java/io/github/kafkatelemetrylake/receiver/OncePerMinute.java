package io.github.kafkatelemetrylake.receiver;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** Limits the logging of a repeated failure. */
public final class OncePerMinute {
    private static final long MINUTE_NANOS = TimeUnit.MINUTES.toNanos(1);
    private final AtomicLong next = new AtomicLong(System.nanoTime());

    /** True at the first call and then at most once a minute. */
    public boolean due() {
        long now = System.nanoTime();
        long at = next.get();
        return now - at >= 0 && next.compareAndSet(at, now + MINUTE_NANOS);
    }
}
