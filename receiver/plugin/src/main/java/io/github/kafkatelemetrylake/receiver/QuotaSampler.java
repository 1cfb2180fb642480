package io.github.kafkatelemetrylake.receiver;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Lands one sample of each quota sensor per interval, with its own thread and producer.
 *
 * <p>A sample that cannot land is not retried, because the next interval has a newer one; it is counted as lost. The heap
 * of samples in flight is limited: a sweep waits for room, and samples that get none in time are lost.
 */
final class QuotaSampler implements QuotaCounts {
    private static final Logger LOG = LoggerFactory.getLogger(QuotaSampler.class);
    /** How long a sweep may wait for the topic's metadata. */
    static final long MAX_BLOCK_MS = 1_000;
    private static final long JOIN_MS = 1_000;
    private static final long ROOM_POLL_MS = 1;
    /** Heap of the samples in flight; 10,000 sensors need 9 MB at once. */
    static final long IN_FLIGHT_BYTES = 16L * 1024 * 1024;
    /** Heap of a sample in flight in addition to its JSON: the producer's record, future and callback. */
    private static final int SAMPLE_OVERHEAD_BYTES = 512;

    private final LanderSettings settings;
    private final BrokerIdentity broker;
    private final Supplier<Producer<byte[], byte[]>> producers;
    private final QuotaSensors sensors = new QuotaSensors();
    private final AtomicReference<Throwable> lastError = new AtomicReference<>();
    private final HeapBudget budget = new HeapBudget(Long.MAX_VALUE, IN_FLIGHT_BYTES);
    private final AtomicLong landed = new AtomicLong();
    private final AtomicLong lost = new AtomicLong();
    private final CountDownLatch ending = new CountDownLatch(1);
    private final OncePerMinute failureLog = new OncePerMinute();
    private final Thread thread;

    // Used only by the sampler's thread.
    private Producer<byte[], byte[]> producer;
    private Thread sender;
    private boolean refused;

    QuotaSampler(LanderSettings settings, BrokerIdentity broker, Supplier<Producer<byte[], byte[]>> producers) {
        this.settings = settings;
        this.broker = broker;
        this.producers = producers;
        thread = new Thread(this::run, "client-telemetry-quotas");
        thread.setDaemon(true);
    }

    /** Does nothing if sampling is switched off. */
    void start() {
        if (settings.quotasEnabled) {
            thread.start();
        }
    }

    /** Called on request threads: never throws. */
    void metricChanged(KafkaMetric metric) {
        try {
            sensors.add(metric);
        } catch (Throwable e) {
            lastError.set(e);
        }
    }

    /** Called when the broker expires a sensor: never throws. */
    void metricRemoved(KafkaMetric metric) {
        try {
            sensors.remove(metric);
        } catch (Throwable e) {
            lastError.set(e);
        }
    }

    @Override
    public int sensors() {
        return sensors.all().size();
    }

    /** Upper bound of the heap that samples in flight use, in bytes. */
    long inFlightBytes() {
        return budget.bytes();
    }

    @Override
    public long landed() {
        return landed.get();
    }

    @Override
    public long lost() {
        return lost.get();
    }

    private void run() {
        try {
            while (!ending.await(untilNextSweepMs(System.currentTimeMillis(), settings.quotasIntervalMs), TimeUnit.MILLISECONDS)) {
                sweep();
            }
        } catch (InterruptedException e) {
            LOG.debug("Interrupted: no more quota samples", e);
        } finally {
            closeProducer();
        }
    }

    /** Sweeps are in the middle of the clock's intervals, so that each interval contains one even if the thread wakes late. */
    static long untilNextSweepMs(long nowMs, long intervalMs) {
        long until = intervalMs - Math.floorMod(nowMs - intervalMs / 2, intervalMs);
        return until < intervalMs / 2 ? until + intervalMs : until;
    }

    /** Samples every sensor once. */
    void sweep() {
        refused = false;
        for (QuotaSensor sensor : sensors.all()) {
            try {
                String json = QuotaRecord.json(broker, sensor, System.currentTimeMillis());
                if (json != null) {
                    send(json);
                }
            } catch (Throwable e) {
                lost.incrementAndGet();
                lastError.set(e);
            }
        }
        Throwable error = lastError.get();
        if (error != null && failureLog.due()) {
            LOG.warn("Quota samples do not land in topic {}: {} lost since the start", settings.quotasTopic, lost.get(), error);
            lastError.compareAndSet(error, null);
        }
    }

    private void send(String json) {
        if (refused) {
            lost.incrementAndGet();  // each remaining sample would wait as long as the rejected one
            return;
        }
        long bytes = SAMPLE_OVERHEAD_BYTES + json.length();
        if (!awaitRoom(bytes)) {
            refused = true;
            lost.incrementAndGet();
            lastError.set(new TimeoutException("no acknowledgement made room for a sample in " + MAX_BLOCK_MS + " ms"));
            return;
        }
        byte[] key = String.valueOf(broker.brokerId()).getBytes(StandardCharsets.UTF_8);
        sender = Thread.currentThread();
        try {
            if (producer == null) {
                producer = producers.get();
            }
            producer.send(
                    new ProducerRecord<>(settings.quotasTopic, key, json.getBytes(StandardCharsets.UTF_8)),
                    (metadata, failure) -> settle(bytes, failure));
        } catch (Throwable e) {
            budget.release(bytes);
            refused = true;
            throw e;
        } finally {
            sender = null;
            if (refused) {
                closeProducer();  // an idempotent producer does not recover from a fatal error
            }
        }
    }

    /** Reserves bytes for a sample in flight; false if nothing was acknowledged in time, or the sampler is closing. */
    private boolean awaitRoom(long bytes) {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(MAX_BLOCK_MS);
        while (!budget.reserve(bytes)) {
            if (ending.getCount() == 0 || System.nanoTime() - deadline > 0) {
                return false;
            }
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(ROOM_POLL_MS));
        }
        return true;
    }

    private void settle(long bytes, Exception failure) {
        budget.release(bytes);
        if (failure == null) {
            landed.incrementAndGet();
            return;
        }
        lost.incrementAndGet();
        lastError.set(failure);
        if (Thread.currentThread() == sender) {
            refused = true;  // KafkaProducer reports here the records that it rejects inside send
        }
    }

    /** Takes at most two seconds. */
    @Override
    public void close() {
        ending.countDown();
        try {
            thread.join(JOIN_MS);
            thread.interrupt();
            thread.join(JOIN_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void closeProducer() {
        if (producer != null) {
            try {
                producer.close(Duration.ZERO);
            } catch (RuntimeException e) {
                LOG.debug("The quota producer did not close cleanly", e);
            }
            producer = null;
        }
    }
}
