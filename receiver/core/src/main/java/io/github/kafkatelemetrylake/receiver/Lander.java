package io.github.kafkatelemetrylake.receiver;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Accepts pushes on request threads and sends them to the topic on its own thread.
 *
 * <p>A push counts against the budget from its offer to its acknowledgement or failure, so that a topic without
 * acknowledgements fills the budget and not the heap. It counts with the payload as it came, however small
 * its value is, so that the bound is the same for payloads that do not shrink. A request thread only copies the push and
 * adds it to the queue. On any error it only counts: it never throws (the client would switch off its telemetry for good),
 * takes no lock, wakes no thread and does not log.
 */
final class Lander {
    private static final Logger LOG = LoggerFactory.getLogger(Lander.class);
    /** Well below the producer's linger; the lander polls, so that no request thread has to wake it. */
    private static final long IDLE_POLL_MS = 10;
    private static final long RETRY_PAUSE_MS = 500;
    private static final long CLOSING_RETRY_PAUSE_MS = 50;
    private static final long JOIN_GRACE_MS = 1_000;

    private final LanderSettings settings;
    private final Ledger ledger;
    private final PayloadCompression compression;
    private final LandingRecords records;
    private final Supplier<Producer<byte[], byte[]>> producers;
    private final Queue<Push> queue = new ConcurrentLinkedQueue<>();
    private final HeapBudget budget;
    /** Request threads inside {@link #offer}: the lander's thread doesn't end before those that found it open. */
    private final AtomicInteger offering = new AtomicInteger();
    /** Pushes that the topic rejected as too large, to land as headers only; never more than were in flight. */
    private final Queue<Push> tooLarge = new ConcurrentLinkedQueue<>();
    private final Set<Delivery> inFlight = ConcurrentHashMap.newKeySet();
    private final AtomicReference<Throwable> lastError = new AtomicReference<>();
    private final OncePerMinute failureLog = new OncePerMinute();
    private final Thread thread;

    // Used only by the lander's thread.
    private Producer<byte[], byte[]> producer;
    private Delivery sending;

    private volatile boolean closing;
    private volatile boolean closed;
    private volatile long closeDeadlineNanos;

    /**
     * Creates a lander; {@link #start} starts its thread.
     *
     * @param producers creates the producer, on the lander's thread, at the first push and after each fatal error
     */
    Lander(LanderSettings settings, BrokerIdentity broker, Ledger ledger, Supplier<Producer<byte[], byte[]>> producers) {
        this.settings = settings;
        this.ledger = ledger;
        this.producers = producers;
        budget = new HeapBudget(settings.queueRecords, settings.queueBytes);
        compression = new PayloadCompression(settings.payloadCompression);
        records = new LandingRecords(settings.topic, broker, compression);
        thread = new Thread(this::run, "client-telemetry-lander");
        thread.setDaemon(true);
    }

    void start() {
        thread.start();
    }

    /** Pushes that are queued or in flight. */
    long queuedRecords() {
        return budget.records();
    }

    /** Upper bound of the heap that these pushes use, in bytes. */
    long queuedBytes() {
        return budget.bytes();
    }

    /** The latest error on a request thread since the last call, for another thread to log; null if there was none. */
    Throwable takeError() {
        return lastError.getAndSet(null);
    }

    /** Takes a push on a request thread, or counts the reason for dropping it: for who has answered the client already. */
    void accept(PushRequest request) {
        if (!offer(request)) {
            ledger.received();
            ledger.dropped(DropReason.CLOSED);
        }
    }

    /**
     * Takes a push on a request thread, or counts the reason for dropping it.
     *
     * @return false if the lander is closing: nothing is taken or counted then, and the client can be told. What is taken
     *     while it closes lands, if that is done within the close timeout
     */
    boolean offer(PushRequest request) {
        long begin = System.nanoTime();
        offering.incrementAndGet();  // before closing is read, which the lander's thread reads first
        try {
            if (closing) {
                return false;
            }
            ledger.received();
            DropReason dropped;
            try {
                dropped = enqueue(request);
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
            return true;
        } finally {
            offering.decrementAndGet();
        }
    }

    private DropReason enqueue(PushRequest request) {
        ByteBuffer data = request.data();
        int size = data == null ? 0 : data.remaining();
        boolean fits = size <= settings.payloadMaxBytes;
        long bytes = Push.FIXED_BYTES + (fits ? size : 0);
        if (!budget.reserve(bytes)) {  // before the payload is copied
            return DropReason.QUEUE_FULL;
        }
        Push push;
        try {
            push = new Push(request.details(), data, fits, settings.headerMaxBytes);
            if (!budget.grow(push.heapBytes() - bytes)) {  // the client's strings
                budget.release(bytes);
                return DropReason.QUEUE_FULL;
            }
            bytes = push.heapBytes();
            queue.add(push);
        } catch (Throwable e) {
            budget.release(bytes);
            throw e;
        }
        // The last drain of the queue may have been before this offer.
        if (closed && queue.remove(push)) {
            budget.release(bytes);
            return DropReason.CLOSED;
        }
        return null;
    }

    private void run() {
        try {
            boolean last;
            do {
                last = nothingComes();  // before the look into the queue: what came until then is in it
            } while (deliverNext() || !last);
        } finally {
            closeProducer(closing ? Math.max(0, closeDeadlineNanos - System.nanoTime()) : 0);
            compression.close();
            closed = true;
            for (Delivery delivery : inFlight) {
                delivery.settle(DropReason.CLOSED);
            }
            for (Push push = next(); push != null; push = next()) {
                budget.release(push.heapBytes());
                ledger.dropped(DropReason.CLOSED);
            }
        }
    }

    /** Whether the queue gets no push any more, or none that there is time for. */
    private boolean nothingComes() {
        return closing && (offering.get() == 0 || System.nanoTime() - closeDeadlineNanos >= 0);
    }

    /** False if no push was queued. A separate method, so that an idle thread references no payload. */
    private boolean deliverNext() {
        Push push = next();
        if (push != null) {
            deliver(push);
        }
        return push != null;
    }

    /** The next push, after a short wait if the queue is empty; null if it stays empty. */
    private Push next() {
        Push push = tooLarge.poll();
        if (push != null) {
            return push;
        }
        push = queue.poll();
        if (push == null && !nothingComes()) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(IDLE_POLL_MS));
        }
        return push;
    }

    /** Passes a push to the producer, or settles it. */
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
            // A push may have waited so long behind others that the producer never got it.
            delivery.fail(delivery.refusal != null
                    ? delivery.refusal
                    : new TimeoutException("it waited longer than the delivery timeout"));
        } catch (InterruptedException | InterruptException e) {
            delivery.settle(DropReason.CLOSED);
        } catch (Throwable e) {
            lastError.set(e);
            delivery.settle(e instanceof OutOfMemoryError ? DropReason.OUT_OF_MEMORY : DropReason.ERROR);
        }
    }

    /** False if the producer rejected the record: it never left this broker, so a retry creates no duplicate. */
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
            closeProducer(0);  // an idempotent producer does not recover from a fatal error
        } finally {
            sending = null;
        }
        if (delivery.refusal != null && failureLog.due()) {
            warn("No push can be sent to topic {}, they wait in the queue: {}", delivery.refusal);
        }
        return delivery.refusal == null;
    }

    /** One line, but for failures that aren't Kafka's own, whose stack is shown. */
    private void warn(String message, Exception failure) {
        LOG.warn(message, settings.topic, failure.toString(), failure instanceof ApiException ? null : failure);
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
        boolean interrupted = Thread.interrupted();  // an interrupted close would fail at once
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
     * Drains the queue for at most the close timeout, counts the rest as {@code closed}, and ends the lander's thread.
     *
     * <p>Takes at most the close timeout plus two seconds.
     */
    void close() {
        closeDeadlineNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(settings.closeTimeoutMs);
        closing = true;
        try {
            thread.join(settings.closeTimeoutMs + 1);
            thread.interrupt();  // interrupts a send that waits for metadata or memory
            thread.join(2 * JOIN_GRACE_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /**
     * One push on its way to the topic; settled exactly once.
     *
     * <p>Has no payload, because the producer has copied it into its buffer. Its bytes still count until the acknowledgement,
     * because a batch that compresses worse than expected exceeds its share of {@code buffer.memory}.
     */
    private final class Delivery implements Callback {
        private final Push headers;
        private final boolean headersOnly;
        private final long bytes;
        private final AtomicBoolean settled = new AtomicBoolean();
        /** Why the producer rejected the record; used only by the lander's thread. */
        private Exception refusal;

        Delivery(Push push) {
            headers = push.headersOnly();
            headersOnly = push.isHeadersOnly();
            bytes = push.heapBytes();
        }

        @Override
        public void onCompletion(RecordMetadata metadata, Exception failure) {
            if (failure == null) {
                settle(headersOnly ? DropReason.TOO_LARGE : null);
            } else if (failure instanceof RecordTooLargeException && !headersOnly) {
                landHeadersOnly();
            } else if (Thread.currentThread() == thread && sending == this) {
                refusal = failure;  // KafkaProducer reports here the records that it rejects inside send
            } else {
                fail(failure);
            }
        }

        private void landHeadersOnly() {
            if (settled.compareAndSet(false, true)) {
                inFlight.remove(this);
                budget.shrink(bytes - headers.heapBytes());
                tooLarge.add(headers);
            }
        }

        void fail(Exception failure) {
            if (!closing && failureLog.due()) {
                warn("A push was lost on its way to topic {}: {}", failure);
            }
            settle(closing ? DropReason.CLOSED : DropReason.SEND_FAILED);
        }

        /** Null if it landed. */
        void settle(DropReason dropped) {
            if (settled.compareAndSet(false, true)) {
                inFlight.remove(this);
                budget.release(bytes);
                if (dropped == null) {
                    ledger.landed();
                } else {
                    ledger.dropped(dropped);
                }
            }
        }
    }
}
