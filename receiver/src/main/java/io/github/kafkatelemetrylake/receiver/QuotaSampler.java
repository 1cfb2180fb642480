package io.github.kafkatelemetrylake.receiver;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Lands one sample of each quota sensor in each interval, by a thread and a producer of its own.
 *
 * <p>A sample that cannot land is not tried again: the next interval's sample stands for the entity. It is counted as lost.
 */
final class QuotaSampler {
    private static final Logger LOG = LoggerFactory.getLogger(QuotaSampler.class);
    /** How long a sweep may wait for the topic's metadata. */
    static final long MAX_BLOCK_MS = 1_000;
    private static final long JOIN_MS = 1_000;

    private final LanderSettings settings;
    private final BrokerIdentity broker;
    private final Supplier<Producer<byte[], byte[]>> producers;
    private final QuotaSensors sensors = new QuotaSensors();
    private final AtomicReference<Throwable> lastError = new AtomicReference<>();
    private final AtomicLong landed = new AtomicLong();
    private final AtomicLong lost = new AtomicLong();
    private final CountDownLatch ending = new CountDownLatch(1);
    private final OncePerMinute failureLog = new OncePerMinute();
    private final Thread thread;

    // The sampler's thread only.
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

    /** Does nothing where sampling is switched off. */
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

    /** Called by the broker's expiry of sensors: never throws. */
    void metricRemoved(KafkaMetric metric) {
        try {
            sensors.remove(metric);
        } catch (Throwable e) {
            lastError.set(e);
        }
    }

    /** Entities times quota types that the broker has sensors of. */
    int sensors() {
        return sensors.all().size();
    }

    /** Samples acknowledged in the topic since the start. */
    long landed() {
        return landed.get();
    }

    /** Samples taken since the start that did not land. */
    long lost() {
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

    /** Sweeps are in the middle of the clock's intervals: a window of that length holds one, however late a thread wakes. */
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
            lost.incrementAndGet();  // the rest of the sweep would each wait as long as the one that was refused
            return;
        }
        byte[] key = String.valueOf(broker.brokerId()).getBytes(StandardCharsets.UTF_8);
        sender = Thread.currentThread();
        try {
            if (producer == null) {
                producer = producers.get();
            }
            producer.send(new ProducerRecord<>(settings.quotasTopic, key, json.getBytes(StandardCharsets.UTF_8)), this::settle);
        } catch (RuntimeException e) {
            refused = true;
            throw e;
        } finally {
            sender = null;
            if (refused) {
                closeProducer();  // a fatal error of an idempotent producer stays until it is replaced
            }
        }
    }

    private void settle(RecordMetadata metadata, Exception failure) {
        if (failure == null) {
            landed.incrementAndGet();
            return;
        }
        lost.incrementAndGet();
        lastError.set(failure);
        if (Thread.currentThread() == sender) {
            refused = true;  // KafkaProducer reports here what it refuses inside send
        }
    }

    /** Ends sampling. Takes at most two seconds. */
    void close() {
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
