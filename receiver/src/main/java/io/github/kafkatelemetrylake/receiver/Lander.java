package io.github.kafkatelemetrylake.receiver;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Takes pushes from the broker's request threads and lands them in the topic by a thread of its own.
 *
 * <p>A request thread only copies and offers to the bounded queue. Whatever happens there, it neither throws (the client
 * would switch its telemetry off for good), nor takes a lock, nor wakes a thread, nor logs: it counts.
 */
final class Lander {
    private static final Logger LOG = LoggerFactory.getLogger(Lander.class);
    /** Well below the producer's linger; the lander looks by itself, so that no request thread has to wake it. */
    private static final long IDLE_POLL_MS = 10;
    private static final long RETRY_PAUSE_MS = 500;
    private static final long CLOSING_RETRY_PAUSE_MS = 50;
    private static final long JOIN_GRACE_MS = 1_000;

    private final LanderSettings settings;
    private final Ledger ledger;
    private final LandingRecords records;
    private final Supplier<Producer<byte[], byte[]>> producers;
    private final Queue<Push> queue = new ConcurrentLinkedQueue<>();
    private final AtomicLong queuedRecords = new AtomicLong();
    private final AtomicLong queuedBytes = new AtomicLong();
    /** Pushes that turned out too large for the topic, to land as headers only; no more than were in flight. */
    private final Queue<Push> tooLarge = new ConcurrentLinkedQueue<>();
    private final Set<Delivery> inFlight = ConcurrentHashMap.newKeySet();
    private final AtomicReference<Throwable> lastError = new AtomicReference<>();
    private final OncePerMinute failureLog = new OncePerMinute();
    private final Thread thread;

    // The lander's thread only.
    private Producer<byte[], byte[]> producer;
    private Delivery sending;

    private volatile boolean closing;
    private volatile boolean closed;
    private volatile long closeDeadlineNanos;

    /**
     * Makes a lander; {@link #start} starts its thread.
     *
     * @param producers makes the producer on the lander's thread, at the first push and again after a fatal error
     */
    Lander(LanderSettings settings, BrokerIdentity broker, Ledger ledger, Supplier<Producer<byte[], byte[]>> producers) {
        this.settings = settings;
        this.ledger = ledger;
        this.producers = producers;
        records = new LandingRecords(settings.topic, broker, new PayloadCompression(settings.payloadCompression));
        thread = new Thread(this::run, "client-telemetry-lander");
        thread.setDaemon(true);
    }

    void start() {
        thread.start();
    }

    /** Pushes waiting for the lander's thread; those in flight are not among them. */
    long queuedRecords() {
        return queuedRecords.get();
    }

    /** Payload bytes of the waiting pushes. */
    long queuedBytes() {
        return queuedBytes.get();
    }

    /** What a push failed with on a request thread since the last call, for another thread to log; null: nothing. */
    Throwable takeError() {
        return lastError.getAndSet(null);
    }

    /**
     * Accepts a push on a request thread, or counts why not.
     *
     * @param context asked for here, so that its failure is counted as well
     * @param pushIntervalMs gives null where the broker does not tell it
     */
    void accept(
            ClientTelemetryPayload payload,
            Supplier<AuthorizableRequestContext> context,
            Supplier<Integer> pushIntervalMs) {
        long begin = System.nanoTime();
        ledger.received();
        DropReason dropped;
        try {
            dropped = offer(payload, context, pushIntervalMs);
        } catch (OutOfMemoryError e) {
            dropped = DropReason.OUT_OF_MEMORY;
        } catch (Throwable e) {
            lastError.set(e);
            dropped = DropReason.ERROR;
        }
        if (dropped != null) {
            ledger.dropped(dropped);
        }
        ledger.requestTime(System.nanoTime() - begin);
    }

    private DropReason offer(
            ClientTelemetryPayload payload,
            Supplier<AuthorizableRequestContext> context,
            Supplier<Integer> pushIntervalMs) {
        if (closing) {
            return DropReason.CLOSED;
        }
        ByteBuffer data = payload.data();
        int size = data == null ? 0 : data.remaining();
        boolean fits = size <= settings.payloadMaxBytes;
        long bytes = fits ? size : 0;
        if (!reserve(bytes)) {
            return DropReason.QUEUE_FULL;
        }
        Push push;
        try {
            push = new Push(context.get(), payload, pushIntervalMs.get(), fits, settings.headerMaxBytes);
            queue.add(push);
        } catch (Throwable e) {
            release(bytes);
            throw e;
        }
        // The last look into the queue may have been before this offer.
        if (closed && queue.remove(push)) {
            release(bytes);
            return DropReason.CLOSED;
        }
        return null;
    }

    /** Takes room for one push before its payload is copied. */
    private boolean reserve(long bytes) {
        if (!grow(queuedRecords, 1, settings.queueRecords)) {
            return false;
        }
        if (!grow(queuedBytes, bytes, settings.queueBytes)) {
            queuedRecords.decrementAndGet();
            return false;
        }
        return true;
    }

    private void release(long bytes) {
        queuedRecords.decrementAndGet();
        queuedBytes.addAndGet(-bytes);
    }

    private static boolean grow(AtomicLong count, long by, long bound) {
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

    private void run() {
        try {
            Push push = next();
            while (push != null || !closing) {
                if (push != null) {
                    deliver(push);
                }
                push = next();
            }
        } finally {
            closeProducer(closing ? Math.max(0, closeDeadlineNanos - System.nanoTime()) : 0);
            closed = true;
            for (Delivery delivery : inFlight) {
                delivery.settle(DropReason.CLOSED);
            }
            for (Push push = next(); push != null; push = next()) {
                ledger.dropped(DropReason.CLOSED);
            }
        }
    }

    /** The next push, after a short wait when there is none; null: none. */
    private Push next() {
        Push push = tooLarge.poll();
        if (push != null) {
            return push;
        }
        push = queue.poll();
        if (push != null) {
            release(push.isHeadersOnly() ? 0 : push.payload.length);
        } else if (!closing) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(IDLE_POLL_MS));
        }
        return push;
    }

    /** Hands a push to the producer, or settles it. */
    private void deliver(Push push) {
        Delivery delivery = new Delivery(push);
        try {
            ProducerRecord<byte[], byte[]> record = records.of(push);
            while (!expired(push)) {
                if (handOver(record, delivery)) {
                    return;
                }
                Thread.sleep(closing ? CLOSING_RETRY_PAUSE_MS : RETRY_PAUSE_MS);
            }
            delivery.fail(delivery.refusal);
        } catch (InterruptedException | InterruptException e) {
            delivery.settle(DropReason.CLOSED);
        } catch (Throwable e) {
            lastError.set(e);
            delivery.settle(e instanceof OutOfMemoryError ? DropReason.OUT_OF_MEMORY : DropReason.ERROR);
        }
    }

    /** False when the producer refused the record: it never left this broker, so that trying again makes no duplicate. */
    private boolean handOver(ProducerRecord<byte[], byte[]> record, Delivery delivery) {
        delivery.refusal = null;
        inFlight.add(delivery);
        sending = delivery;
        try {
            if (producer == null) {
                producer = producers.get();
            }
            producer.send(record, delivery);
        } catch (InterruptException e) {
            throw e;
        } catch (RuntimeException e) {
            delivery.refusal = e;
            closeProducer(0);  // a fatal error of an idempotent producer stays until it is replaced
        } finally {
            sending = null;
        }
        if (delivery.refusal != null && failureLog.due()) {
            LOG.warn("No push can be sent to topic {}, they wait in the queue", settings.topic, delivery.refusal);
        }
        return delivery.refusal == null;
    }

    private boolean expired(Push push) {
        long now = System.nanoTime();
        return closing
                ? now - closeDeadlineNanos >= 0
                : now - push.receivedNanos > TimeUnit.MILLISECONDS.toNanos(settings.producer.deliveryTimeoutMs());
    }

    private void closeProducer(long waitNanos) {
        if (producer == null) {
            return;
        }
        boolean interrupted = Thread.interrupted();  // close would fail at once
        try {
            producer.close(Duration.ofNanos(waitNanos));
        } catch (RuntimeException e) {
            LOG.warn("The producer did not close cleanly", e);
        }
        producer = null;
        if (interrupted && !closing) {
            Thread.currentThread().interrupt();
        }
    }

    /**
     * Drains for at most the close timeout, counts the rest as {@code closed}, and ends the lander's thread.
     *
     * <p>Takes at most the close timeout and two seconds.
     */
    void close() {
        closeDeadlineNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(settings.closeTimeoutMs);
        closing = true;
        try {
            thread.join(settings.closeTimeoutMs + 1);
            thread.interrupt();  // out of a send that waits for metadata or memory
            thread.join(2 * JOIN_GRACE_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** One push on its way to the topic; settled exactly once. */
    private final class Delivery implements Callback {
        private final Push push;
        private final AtomicBoolean settled = new AtomicBoolean();
        /** Why the producer did not take the record; the lander's thread only. */
        private Exception refusal;

        Delivery(Push push) {
            this.push = push;
        }

        @Override
        public void onCompletion(RecordMetadata metadata, Exception failure) {
            if (failure == null) {
                settle(push.isHeadersOnly() ? DropReason.TOO_LARGE : null);
            } else if (failure instanceof RecordTooLargeException && !push.isHeadersOnly()) {
                landHeadersOnly();
            } else if (Thread.currentThread() == thread && sending == this) {
                refusal = failure;  // KafkaProducer reports here what it refuses inside send
            } else {
                fail(failure);
            }
        }

        private void landHeadersOnly() {
            if (settled.compareAndSet(false, true)) {
                inFlight.remove(this);
                tooLarge.add(push.headersOnly());
            }
        }

        void fail(Exception failure) {
            if (!closing && failureLog.due()) {
                LOG.warn("A push was lost on its way to topic {}", settings.topic, failure);
            }
            settle(closing ? DropReason.CLOSED : DropReason.SEND_FAILED);
        }

        /** Null for landed. */
        void settle(DropReason dropped) {
            if (settled.compareAndSet(false, true)) {
                inFlight.remove(this);
                if (dropped == null) {
                    ledger.landed();
                } else {
                    ledger.dropped(dropped);
                }
            }
        }
    }
}
