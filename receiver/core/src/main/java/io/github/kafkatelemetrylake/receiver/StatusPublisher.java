package io.github.kafkatelemetrylake.receiver;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Lands a status record per interval and at the end, with its own thread and producer, so that losses are reported even
 * while the pushes themselves cannot land.
 *
 * <p>A stopping broker often no longer accepts its own last status, which is then stored in a file. The next start lands it.
 */
final class StatusPublisher {
    private static final Logger LOG = LoggerFactory.getLogger(StatusPublisher.class);
    /** How long a status may wait for the topic's metadata. */
    static final long MAX_BLOCK_MS = 1_000;
    private static final long FINAL_ACK_MS = 1_000;
    private static final long JOIN_MS = 1_000;
    /** Limit of unacknowledged statuses; above it the next is skipped, because a later one includes its counts. */
    static final int MAX_IN_FLIGHT = 64;

    private final LanderSettings settings;
    private final BrokerIdentity broker;
    private final Ledger ledger;
    private final Lander lander;
    private final QuotaCounts quotas;
    private final Supplier<String> connections;
    private final Supplier<Producer<byte[], byte[]>> producers;
    private final CountDownLatch ending = new CountDownLatch(1);
    private final OncePerMinute failureLog = new OncePerMinute();
    private final OncePerMinute lossLog = new OncePerMinute();
    private final OncePerMinute errorLog = new OncePerMinute();
    private final AtomicInteger inFlight = new AtomicInteger();
    private final Thread thread;

    private Producer<byte[], byte[]> producer;
    private long lossesLogged;
    /** The last status of the previous run until it has landed; null: none. */
    private volatile byte[] unlanded;

    StatusPublisher(
            LanderSettings settings,
            BrokerIdentity broker,
            Ledger ledger,
            Lander lander,
            QuotaCounts quotas,
            Supplier<String> connections,
            Supplier<Producer<byte[], byte[]>> producers) {
        this.settings = settings;
        this.broker = broker;
        this.ledger = ledger;
        this.lander = lander;
        this.quotas = quotas;
        this.connections = connections;
        this.producers = producers;
        thread = new Thread(this::run, "client-telemetry-status");
        thread.setDaemon(true);
    }

    void start() {
        thread.start();
    }

    private void run() {
        unlanded = readFile();
        try {
            while (!ending.await(settings.statusIntervalMs, TimeUnit.MILLISECONDS)) {
                tick();
            }
        } catch (InterruptedException e) {
            LOG.debug("Interrupted: no more status records", e);
        }
    }

    private void tick() {
        try {
            logLosses();
            if (inFlight.get() >= MAX_IN_FLIGHT) {
                return;
            }
            byte[] before = unlanded;
            if (before != null) {
                unlanded = null;
                send(before, (metadata, failure) -> landedBefore(before, failure));
            }
            send(status(), this::landed);
        } catch (Throwable e) {
            if (failureLog.due()) {
                LOG.warn("No status record can be sent to topic {}", settings.statusTopic, e);
            }
        }
    }

    private byte[] status() {
        return StatusRecord.json(
                        broker, ledger.snapshot(), quotas, connections.get(), ledger.startedMs, System.currentTimeMillis())
                .getBytes(StandardCharsets.UTF_8);
    }

    private Future<RecordMetadata> send(byte[] status, Callback callback) {
        inFlight.incrementAndGet();
        Callback settled = (metadata, failure) -> {
            inFlight.decrementAndGet();
            callback.onCompletion(metadata, failure);
        };
        try {
            if (producer == null) {
                producer = producers.get();
            }
            byte[] key = String.valueOf(broker.brokerId()).getBytes(StandardCharsets.UTF_8);
            return producer.send(new ProducerRecord<>(settings.statusTopic, key, status), settled);
        } catch (RuntimeException e) {
            closeProducer();  // an idempotent producer does not recover from a fatal error
            settled.onCompletion(null, e);
            throw e;
        }
    }

    private void landed(RecordMetadata metadata, Exception failure) {
        if (failure != null && failureLog.due()) {
            LOG.warn("A status record did not land in topic {}; the next one includes its counts", settings.statusTopic, failure);
        }
    }

    private void landedBefore(byte[] status, Exception failure) {
        if (failure != null) {
            unlanded = status;
            landed(null, failure);
            return;
        }
        try {
            Files.deleteIfExists(settings.statusFile);
        } catch (IOException e) {
            LOG.warn("{} has landed but cannot be deleted: the next start lands it again", settings.statusFile, e);
        }
    }

    /** Logs on behalf of the request threads, which must not log. */
    private void logLosses() {
        Throwable error = lander.takeError();
        if (error != null && errorLog.due()) {
            LOG.error("A push was dropped by an unexpected error", error);
        }
        Ledger.Snapshot counts = ledger.snapshot();
        if (counts.droppedTotal() > lossesLogged && lossLog.due()) {
            LOG.warn("{} of {} pushes dropped since the start: {}", counts.droppedTotal(), counts.received, counts.dropped);
            lossesLogged = counts.droppedTotal();
        }
    }

    /** Lands the last status, or stores it in the status file. Call it after the lander's close. Takes up to about four seconds. */
    void close() {
        ending.countDown();
        try {
            thread.join(JOIN_MS);
            thread.interrupt();
            thread.join(JOIN_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        byte[] last = status();
        try {
            send(last, this::landed).get(FINAL_ACK_MS, TimeUnit.MILLISECONDS);
        } catch (Exception e) {
            writeFile(last);
        }
        closeProducer();
    }

    private void closeProducer() {
        if (producer != null) {
            try {
                producer.close(Duration.ZERO);
            } catch (RuntimeException e) {
                LOG.debug("The status producer did not close cleanly", e);
            }
            producer = null;
        }
    }

    private byte[] readFile() {
        try {
            Path file = settings.statusFile;
            return file != null && Files.exists(file) ? Files.readAllBytes(file) : null;
        } catch (IOException e) {
            LOG.warn("{} cannot be read: the last status of the previous run is lost", settings.statusFile, e);
            return null;
        }
    }

    private void writeFile(byte[] status) {
        if (settings.statusFile == null) {
            return;
        }
        try {
            Files.write(settings.statusFile, status);
        } catch (IOException e) {
            LOG.warn("{} cannot be written: the last status is only in this log", settings.statusFile, e);
        }
    }
}
