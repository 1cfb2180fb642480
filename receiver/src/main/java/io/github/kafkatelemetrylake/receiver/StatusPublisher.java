package io.github.kafkatelemetrylake.receiver;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Lands a status record each interval and at the end, by a thread and a producer of its own: losses are reported while
 * the pushes themselves cannot land.
 *
 * <p>A stopping broker often no longer takes its own last status. It is then kept in a file, which the next start lands.
 */
final class StatusPublisher {
    private static final Logger LOG = LoggerFactory.getLogger(StatusPublisher.class);
    /** How long a status may wait for the topic's metadata. */
    static final long MAX_BLOCK_MS = 1_000;
    private static final long FINAL_ACK_MS = 1_000;
    private static final long JOIN_MS = 1_000;

    private final LanderSettings settings;
    private final BrokerIdentity broker;
    private final Ledger ledger;
    private final Lander lander;
    private final QuotaSampler quotas;
    private final Supplier<Producer<byte[], byte[]>> producers;
    private final CountDownLatch ending = new CountDownLatch(1);
    private final OncePerMinute failureLog = new OncePerMinute();
    private final OncePerMinute lossLog = new OncePerMinute();
    private final OncePerMinute errorLog = new OncePerMinute();
    private final Thread thread;

    private Producer<byte[], byte[]> producer;
    private long lossesLogged;
    /** The last status of the run before, while it has not landed; null: none. */
    private volatile byte[] unlanded;

    StatusPublisher(
            LanderSettings settings,
            BrokerIdentity broker,
            Ledger ledger,
            Lander lander,
            QuotaSampler quotas,
            Supplier<Producer<byte[], byte[]>> producers) {
        this.settings = settings;
        this.broker = broker;
        this.ledger = ledger;
        this.lander = lander;
        this.quotas = quotas;
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
        return StatusRecord.json(broker, ledger.snapshot(), quotas, ledger.startedMs, System.currentTimeMillis())
                .getBytes(StandardCharsets.UTF_8);
    }

    private Future<RecordMetadata> send(byte[] status, Callback callback) {
        try {
            if (producer == null) {
                producer = producers.get();
            }
            byte[] key = String.valueOf(broker.brokerId()).getBytes(StandardCharsets.UTF_8);
            return producer.send(new ProducerRecord<>(settings.statusTopic, key, status), callback);
        } catch (RuntimeException e) {
            closeProducer();  // a fatal error of an idempotent producer stays until it is replaced
            callback.onCompletion(null, e);
            throw e;
        }
    }

    private void landed(RecordMetadata metadata, Exception failure) {
        if (failure != null && failureLog.due()) {
            LOG.warn("A status record did not land in topic {}; the next one holds its counts too", settings.statusTopic, failure);
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

    /** What the request threads must not log themselves. */
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

    /** Lands the last status, or keeps it in the status file. Call after the lander is closed. Takes at most about four seconds. */
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
            LOG.warn("{} cannot be read: the last status of the run before is lost", settings.statusFile, e);
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
