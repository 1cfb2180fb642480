package io.github.kafkatelemetrylake.receiver;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.kafkatelemetrylake.receiver.Fakes.Rig;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(900)  // ends what hangs; a busy machine is slow, not wrong
class LanderTest {
    private static final byte[] BYTES = {1, 2, 3};
    private static final int MIB = 1024 * 1024;

    /** A producer whose send is supplied by the test. */
    private abstract static class FakeProducer extends MockProducer<byte[], byte[]> {
        FakeProducer() {
            super(false, null, new ByteArraySerializer(), new ByteArraySerializer());
        }

        @Override
        public Future<RecordMetadata> send(ProducerRecord<byte[], byte[]> record, Callback callback) {
            accept(record, callback);
            return new CompletableFuture<>();
        }

        abstract void accept(ProducerRecord<byte[], byte[]> record, Callback callback);
    }

    /** Bytes that a push of {@link Rig#push} counts. */
    private static long bytesOf(int payloadBytes) {
        return Fakes.push(Fakes.context("app"), Fakes.payload(new byte[payloadBytes]), 30_000, 1024).heapBytes();
    }

    private static void assertCounts(Rig rig, long received, long landed, Map<DropReason, Long> dropped, long queued) {
        Ledger.Snapshot counts = rig.ledger.snapshot();
        assertEquals(received, counts.received, "received");
        assertEquals(landed, counts.landed, "landed");
        for (DropReason reason : DropReason.values()) {
            assertEquals(dropped.getOrDefault(reason, 0L), counts.dropped.get(reason), reason.toString());
        }
        assertEquals(queued, counts.queueDepth(), "queued");
    }

    @Test
    void pushesLandInOrder() throws Exception {
        MockProducer<byte[], byte[]> producer = Fakes.mockProducer(true);
        Rig rig = new Rig(Fakes.settings(), producer);
        rig.lander.start();
        for (byte i = 0; i < 3; i++) {
            rig.push(new byte[] {i});
        }
        Fakes.await(() -> rig.ledger.snapshot().landed == 3);

        for (int i = 0; i < 3; i++) {
            assertArrayEquals(new byte[] {(byte) i}, producer.history().get(i).value());
        }
        assertCounts(rig, 3, 3, Map.of(), 0);
        assertEquals(0, rig.lander.queuedBytes());
        assertEquals(0, rig.lander.queuedRecords());
        rig.lander.close();
        assertTrue(producer.closed());
    }

    @Test
    void fullQueueReturnsAtOnceAndCounts() {
        Rig rig = new Rig(Fakes.settings("queue.records", "2"), Fakes.mockProducer(true));  // never started: nothing drains
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        long self = Thread.currentThread().getId();
        long waited = threads.getThreadInfo(self).getWaitedCount();
        long begin = threads.getCurrentThreadCpuTime();
        for (int i = 0; i < 1_000; i++) {
            rig.push(BYTES);
        }

        assertTrue(threads.getCurrentThreadCpuTime() - begin < TimeUnit.SECONDS.toNanos(2));
        assertEquals(waited, threads.getThreadInfo(self).getWaitedCount());
        assertCounts(rig, 1_000, 0, Map.of(DropReason.QUEUE_FULL, 998L), 2);
        assertEquals(2 * bytesOf(3), rig.lander.queuedBytes());
    }

    @Test
    void queueIsBoundedByBytesToo() {
        int least = LanderSettings.RECORD_HEADROOM_BYTES + 60_000;
        Rig rig = new Rig(
                Fakes.settings("queue.bytes", String.valueOf(least), "payload.max.bytes", "60000"), Fakes.mockProducer(true));
        int rest = Math.toIntExact(least - bytesOf(60_000) - bytesOf(0));
        for (int size : new int[] {60_000, rest + 1, rest, 0}) {  // the second is a byte too large, the fourth finds no room
            rig.push(new byte[size]);
        }

        assertCounts(rig, 4, 0, Map.of(DropReason.QUEUE_FULL, 2L), 2);
        assertEquals(2, rig.lander.queuedRecords());
        assertEquals(least, rig.lander.queuedBytes());
    }

    @Test
    void payloadAboveThePluginsLimitLandsAsHeadersOnly() throws Exception {
        MockProducer<byte[], byte[]> producer = Fakes.mockProducer(true);
        Rig rig = new Rig(Fakes.settings("payload.max.bytes", "4"), producer);
        rig.lander.start();
        rig.push(new byte[5]);
        rig.push(new byte[4]);
        Fakes.await(() -> rig.ledger.snapshot().queueDepth() == 0);

        assertCounts(rig, 2, 1, Map.of(DropReason.TOO_LARGE, 1L), 0);
        ProducerRecord<byte[], byte[]> marker = producer.history().get(0);
        assertEquals(0, marker.value().length);
        assertEquals("too_large", Fakes.headers(marker).get("dropped"));
        assertEquals("5", Fakes.headers(marker).get("payload_bytes"));
        assertEquals(4, producer.history().get(1).value().length);
        rig.lander.close();
    }

    @Test
    void recordTooLargeForTheTopicLandsAsHeadersOnly() throws Exception {
        List<ProducerRecord<byte[], byte[]>> landed = new ArrayList<>();
        Producer<byte[], byte[]> producer = new FakeProducer() {
            @Override
            void accept(ProducerRecord<byte[], byte[]> record, Callback callback) {
                if (record.value().length > 0) {  // as the broker's answer, on the producer's own thread
                    new Thread(() -> callback.onCompletion(null, new RecordTooLargeException())).start();
                } else {
                    landed.add(record);
                    callback.onCompletion(null, null);
                }
            }
        };
        Rig rig = new Rig(Fakes.settings(), producer);
        rig.lander.start();
        rig.push(BYTES);
        Fakes.await(() -> rig.ledger.snapshot().queueDepth() == 0);

        assertCounts(rig, 1, 0, Map.of(DropReason.TOO_LARGE, 1L), 0);
        assertEquals("3", Fakes.headers(landed.get(0)).get("payload_bytes"));
        rig.lander.close();
    }

    @Test
    void refusedRecordIsRetriedUntilTheTopicIsBack() throws Exception {
        AtomicInteger attempts = new AtomicInteger();
        Producer<byte[], byte[]> producer = new FakeProducer() {
            @Override
            void accept(ProducerRecord<byte[], byte[]> record, Callback callback) {
                boolean back = attempts.incrementAndGet() > 2;
                callback.onCompletion(null, back ? null : new TimeoutException("Topic client-telemetry not present in metadata"));
            }
        };
        Rig rig = new Rig(Fakes.settings(), producer);
        rig.lander.start();
        rig.push(BYTES);
        Fakes.await(() -> rig.ledger.snapshot().landed == 1);

        assertEquals(3, attempts.get());
        assertCounts(rig, 1, 1, Map.of(), 0);
        rig.lander.close();
    }

    @Test
    void refusedRecordIsLostAfterTheDeliveryTimeout() throws Exception {
        Producer<byte[], byte[]> producer = new FakeProducer() {
            @Override
            void accept(ProducerRecord<byte[], byte[]> record, Callback callback) {
                callback.onCompletion(null, new TimeoutException("no metadata"));
            }
        };
        Rig rig = new Rig(Fakes.settings("producer.delivery.timeout.ms", "700"), producer);
        rig.lander.start();
        for (int i = 0; i < 5; i++) {
            rig.push(BYTES);
        }
        Fakes.await(() -> rig.ledger.snapshot().queueDepth() == 0);

        assertCounts(rig, 5, 0, Map.of(DropReason.SEND_FAILED, 5L), 0);
        rig.lander.close();
    }

    @Test
    void pushThatExpiresBehindAnotherIsSendFailedToo() throws Exception {
        AtomicInteger sent = new AtomicInteger();
        Producer<byte[], byte[]> producer = new FakeProducer() {
            @Override
            void accept(ProducerRecord<byte[], byte[]> record, Callback callback) {
                sent.incrementAndGet();
                long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(1_000);
                while (System.nanoTime() < end) {
                    LockSupport.parkNanos(end - System.nanoTime());
                }
                callback.onCompletion(null, null);
            }
        };
        Rig rig = new Rig(Fakes.settings("producer.delivery.timeout.ms", "700"), producer);
        rig.push(BYTES);
        rig.push(BYTES);
        rig.lander.start();
        Fakes.await(() -> rig.ledger.snapshot().queueDepth() == 0);

        long landed = sent.get();  // 1, or 0 on a machine that needs 0.7 s to start a thread
        assertTrue(landed <= 1, "sent " + landed);
        assertCounts(rig, 2, landed, Map.of(DropReason.SEND_FAILED, 2 - landed), 0);
        rig.lander.close();
    }

    @Test
    void recordLostInFlightIsNotSentAgain() throws Exception {
        MockProducer<byte[], byte[]> producer = Fakes.mockProducer(false);
        Rig rig = new Rig(Fakes.settings(), producer);
        rig.lander.start();
        rig.push(BYTES);
        Fakes.await(() -> producer.history().size() == 1);
        assertCounts(rig, 1, 0, Map.of(), 1);
        producer.errorNext(new TimeoutException("expired in the accumulator"));

        assertCounts(rig, 1, 0, Map.of(DropReason.SEND_FAILED, 1L), 0);
        rig.lander.close();
        assertEquals(1, producer.history().size());
    }

    @Test
    void producerThatThrowsIsReplaced() throws Exception {
        List<MockProducer<byte[], byte[]>> made = new ArrayList<>();
        Ledger ledger = new Ledger(1_000);
        Lander lander = new Lander(Fakes.settings(), Fakes.broker(), ledger, () -> {
            if (made.isEmpty()) {
                made.add(null);
                throw new KafkaException("No resolvable bootstrap urls");
            }
            MockProducer<byte[], byte[]> producer = Fakes.mockProducer(true);
            if (made.size() == 1) {
                producer.sendException = new KafkaException("in an error state");
            }
            made.add(producer);
            return producer;
        });
        lander.start();
        lander.accept(new BrokerPush(Fakes.payload(BYTES), () -> Fakes.context("app"), () -> 1_000));
        Fakes.await(() -> ledger.snapshot().landed == 1);

        assertEquals(3, made.size());
        assertTrue(made.get(1).closed());
        assertEquals(1, made.get(2).history().size());
        lander.close();
    }

    @Test
    void nothingThatThrowsReachesTheBroker() {
        Rig rig = new Rig(Fakes.settings(), Fakes.mockProducer(true));
        rig.lander.accept(new BrokerPush(Fakes.payload(BYTES), () -> null, () -> 1_000));
        rig.lander.accept(new BrokerPush(null, () -> Fakes.context("app"), () -> 1_000));
        rig.lander.accept(new BrokerPush(Fakes.payload(BYTES), () -> Fakes.context("app"), () -> {
            throw new NoSuchMethodError("pushIntervalMs");
        }));
        rig.lander.accept(new BrokerPush(
                new Fakes.Payload(null) {
                    @Override
                    public ByteBuffer data() {
                        throw new OutOfMemoryError("Java heap space");
                    }
                },
                () -> Fakes.context("app"),
                () -> 1_000));

        assertCounts(rig, 4, 0, Map.of(DropReason.ERROR, 3L, DropReason.OUT_OF_MEMORY, 1L), 0);
        assertEquals(0, rig.lander.queuedBytes());
        assertInstanceOf(NoSuchMethodError.class, rig.lander.takeError());
        assertNull(rig.lander.takeError());
    }

    @Test
    void closeDrainsTheQueue() {
        MockProducer<byte[], byte[]> producer = Fakes.mockProducer(true);
        Rig rig = new Rig(Fakes.settings(), producer);
        for (int i = 0; i < 100; i++) {
            rig.push(BYTES);
        }
        rig.lander.start();
        rig.lander.close();

        assertCounts(rig, 100, 100, Map.of(), 0);
        assertEquals(100, producer.history().size());
    }

    @Test
    void closeLandsWhatAnIdleLanderHasNotSeenYet() throws Exception {
        for (int i = 0; i < 20; i++) {
            Rig rig = new Rig(Fakes.settings(), Fakes.mockProducer(true));
            rig.lander.start();
            rig.push(BYTES);
            Fakes.await(() -> rig.ledger.snapshot().landed == 1);  // now it sleeps before it looks again
            rig.push(BYTES);
            rig.lander.close();

            assertCounts(rig, 2, 2, Map.of(), 0);
        }
    }

    /** Asks in the midst of a push: its thread waits where it copies the request until {@code go}. */
    private static BrokerPush slowPush(CountDownLatch copying, CountDownLatch go) {
        return new BrokerPush(Fakes.payload(BYTES), () -> Fakes.context("app"), () -> {
            copying.countDown();
            try {
                go.await();
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
            return 1_000;
        });
    }

    @Test
    void whatIsTakenLandsAndTheRestIsRefusedWhileItCloses() throws Exception {
        CountDownLatch copying = new CountDownLatch(1);
        CountDownLatch go = new CountDownLatch(1);
        MockProducer<byte[], byte[]> producer = Fakes.mockProducer(true);
        Rig rig = new Rig(Fakes.settings("close.timeout.ms", "600000"), producer);
        rig.lander.start();
        CompletableFuture<Boolean> taken = CompletableFuture.supplyAsync(() -> rig.lander.offer(slowPush(copying, go)));
        copying.await();
        Thread closing = new Thread(rig.lander::close);
        closing.start();
        int before = 0;  // until the other thread has begun
        while (rig.lander.offer(new BrokerPush(Fakes.payload(BYTES), () -> Fakes.context("app"), () -> 1_000))) {
            before++;
            Thread.sleep(5);
        }
        go.countDown();
        closing.join();

        assertTrue(taken.get());
        assertCounts(rig, before + 1, before + 1, Map.of(), 0);  // without the one that was refused
        assertEquals(before + 1, producer.history().size());
    }

    @Test
    void closeCountsWhatDidNotLandInTime() throws Exception {
        CountDownLatch sending = new CountDownLatch(1);
        Producer<byte[], byte[]> producer = new FakeProducer() {
            private int sends;

            @Override
            void accept(ProducerRecord<byte[], byte[]> record, Callback callback) {
                if (sends++ == 0) {
                    return;  // in flight for ever
                }
                sending.countDown();
                try {
                    Thread.sleep(3_600_000);  // as a send that waits for memory or metadata
                } catch (InterruptedException e) {
                    throw new org.apache.kafka.common.errors.InterruptException(e);
                }
            }
        };
        Rig rig = new Rig(Fakes.settings("close.timeout.ms", "200"), producer);
        rig.lander.start();
        for (int i = 0; i < 5; i++) {
            rig.push(BYTES);
        }
        sending.await();
        long begin = System.nanoTime();
        rig.lander.close();
        long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin);
        rig.push(BYTES);

        // The send would take an hour. A machine that gives a thread a twentieth of its time keeps the bound.
        assertTrue(millis >= 200 && millis < 60_000, "closed in " + millis + " ms");
        assertCounts(rig, 6, 0, Map.of(DropReason.CLOSED, 6L), 0);
        assertEquals(0, rig.lander.queuedBytes());
    }

    @Test
    void pushThatIsOfferedAfterTheLastDrainIsCounted() throws Exception {
        CountDownLatch copying = new CountDownLatch(1);
        CountDownLatch closed = new CountDownLatch(1);
        Rig rig = new Rig(Fakes.settings("close.timeout.ms", "200"), Fakes.mockProducer(true));
        rig.lander.start();
        Thread request = new Thread(() -> rig.lander.accept(slowPush(copying, closed)));
        request.start();
        copying.await();
        rig.lander.close();
        closed.countDown();
        request.join();

        assertCounts(rig, 1, 0, Map.of(DropReason.CLOSED, 1L), 0);
        assertEquals(0, rig.lander.queuedRecords());
        assertEquals(0, rig.lander.queuedBytes());
    }

    @Test
    void countsBalanceUnderConcurrentLoad() throws Exception {
        ExecutorService ioThread = Executors.newSingleThreadExecutor();
        Producer<byte[], byte[]> producer = new FakeProducer() {
            private int sends;

            @Override
            void accept(ProducerRecord<byte[], byte[]> record, Callback callback) {
                int outcome = sends++ % 8;
                ioThread.execute(() -> callback.onCompletion(
                        null, outcome == 0 ? new RecordTooLargeException() : outcome == 1 ? new TimeoutException("lost") : null));
                LockSupport.parkNanos(20_000);  // slower than the request threads: the queue fills
            }
        };
        Rig rig = new Rig(Fakes.settings("queue.records", "50", "payload.max.bytes", "900"), producer);
        rig.lander.start();
        AtomicBoolean stopped = new AtomicBoolean();
        AtomicLong pushed = new AtomicLong();
        List<Thread> clients = new ArrayList<>();
        for (int t = 0; t < 8; t++) {
            clients.add(new Thread(() -> {
                for (int i = 0; !stopped.get(); i++) {
                    rig.push(new byte[i % 1_000]);
                    pushed.incrementAndGet();
                    if (i % 16 == 0) {
                        LockSupport.parkNanos(200_000);
                    }
                }
            }));
        }
        clients.forEach(Thread::start);
        Fakes.await(() -> {
            Ledger.Snapshot counts = rig.ledger.snapshot();
            assertTrue(counts.queueDepth() >= 0);
            return counts.received > 10_000
                    && counts.landed > 0
                    && Stream.of(DropReason.QUEUE_FULL, DropReason.TOO_LARGE, DropReason.SEND_FAILED)
                            .allMatch(reason -> counts.dropped.get(reason) > 0);
        });
        rig.lander.close();  // while pushes still come
        Fakes.await(() -> rig.dropped(DropReason.CLOSED) > 0);
        stopped.set(true);
        for (Thread client : clients) {
            client.join();
        }
        ioThread.shutdown();
        assertTrue(ioThread.awaitTermination(600, TimeUnit.SECONDS));

        Ledger.Snapshot counts = rig.ledger.snapshot();
        assertEquals(pushed.get(), counts.received);
        assertEquals(0, counts.queueDepth());
        assertEquals(0, rig.lander.queuedRecords());
        assertEquals(0, rig.lander.queuedBytes());
        assertEquals(0, rig.dropped(DropReason.ERROR));
    }

    @Test
    void requestTimeIsMeasured() {
        Rig rig = new Rig(Fakes.settings(), Fakes.mockProducer(true));
        assertEquals(0, rig.ledger.requestMicrosAvg());
        rig.ledger.requestTime(1_500);
        rig.ledger.requestTime(2_500);

        assertEquals(2.0, rig.ledger.requestMicrosAvg());
        assertEquals(2.5, rig.ledger.requestMicrosMax());
        rig.push(new byte[5 * MIB]);
        assertTrue(rig.ledger.requestMicrosMax() > 2.5);
    }
}
