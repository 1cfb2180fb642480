package io.github.kafkatelemetrylake.receiver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.kafkatelemetrylake.receiver.Fakes.Rig;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.List;
import java.util.Queue;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The heap that the lander's pushes use while nothing is acknowledged. */
@Timeout(900)  // ends what hangs; a busy machine is slow, not wrong
class HeapBudgetTest {
    private static final int MIB = 1024 * 1024;

    /** Retains the parts of a record that KafkaProducer retains until its acknowledgement, except the copy in its buffer. */
    private static final class SilentProducer extends MockProducer<byte[], byte[]> {
        final Queue<Callback> callbacks = new ConcurrentLinkedQueue<>();
        final Queue<Object> retained = new ConcurrentLinkedQueue<>();

        SilentProducer() {
            super(false, null, new ByteArraySerializer(), new ByteArraySerializer());
        }

        @Override
        public Future<RecordMetadata> send(ProducerRecord<byte[], byte[]> record, Callback callback) {
            CompletableFuture<RecordMetadata> future = new CompletableFuture<>();
            retained.add(List.of(record.headers(), future, "client-telemetry-0@-1"));
            callbacks.add(callback);
            return future;
        }

        /** Answers one record, as the producer's own thread does. */
        void answer(Exception failure) {
            callbacks.remove().onCompletion(null, failure);
            retained.remove();
        }
    }

    private static long heapBytes() throws InterruptedException {
        for (int i = 0; i < 3; i++) {
            System.gc();
            Thread.sleep(20);
        }
        return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    }

    /** Pushes the text as client id and software name, and waits until the lander has sent all accepted pushes. */
    private static void push(Rig rig, SilentProducer producer, int pushes, int payloadBytes, String text) throws Exception {
        for (int i = 0; i < pushes; i++) {
            rig.lander.accept(new BrokerPush(Fakes.payload(new byte[payloadBytes]), () -> Fakes.context(text, text), () -> 30_000));
        }
        Fakes.await(() -> producer.callbacks.size() == rig.ledger.snapshot().queueDepth());
    }

    @ParameterizedTest
    @CsvSource({
        "150, 1048576, 10",
        "50000, 0, 10",
        "50000, 0, 32000",
        "30000, 3000, 300",
    })
    void pushesThatAreNeverAcknowledgedTakeNoMoreThanTheBudget(int pushes, int payloadBytes, int textLength) throws Exception {
        SilentProducer producer = new SilentProducer();
        LanderSettings settings = Fakes.settings(
                "queue.bytes", String.valueOf(32 * MIB), "payload.max.bytes", String.valueOf(2 * MIB), "queue.records", "10000000");
        Rig rig = new Rig(settings, producer);
        rig.lander.start();
        String text = "x".repeat(textLength - 1) + "\u20ac";  // its string takes two bytes a character
        long before = heapBytes();
        push(rig, producer, pushes, payloadBytes, text);
        long grown = heapBytes() - before;

        assertTrue(grown <= 33 * MIB, "the heap grew by " + grown + " bytes");
        Ledger.Snapshot counts = rig.ledger.snapshot();
        assertEquals(pushes, counts.received);
        assertEquals(pushes, counts.queueDepth() + rig.dropped(DropReason.QUEUE_FULL));
        assertTrue(rig.dropped(DropReason.QUEUE_FULL) > 0);
        rig.lander.close();
        assertEquals(0, rig.ledger.snapshot().queueDepth());
        assertEquals(0, rig.lander.queuedBytes());
        assertEquals(0, rig.lander.queuedRecords());
    }

    /** Zeros compress a thousandfold: the producer's own buffer has room for thousands of such pushes. */
    @ParameterizedTest
    @CsvSource({"none, 600, 1000000, 0", "none, 60000, 100, 0", "zstd, 600, 1000000, 500000", "zstd, 60000, 3000, 300"})
    void kafkaProducerWithoutAcknowledgementsStaysWithinTheDocumentedHeap(
            String codec, int pushes, int payloadBytes, int randomBytes) throws Exception {
        LanderSettings defaults = Fakes.settings();
        byte[] random = new byte[randomBytes];
        try (SilentBroker broker = new SilentBroker(defaults.topic)) {
            LanderSettings settings = Fakes.settings(
                    "queue.records", "1000000", "payload.compression", codec, "bootstrap.servers", broker.bootstrapServers(),
                    "producer.delivery.timeout.ms", "3600000");  // none is given up while the test looks
            Ledger ledger = new Ledger(1_000);
            Lander lander = new Lander(settings, Fakes.broker(), ledger, () -> settings.producer.create("silent"));
            lander.start();
            long before = heapBytes();
            for (int i = 0; i < pushes; i++) {
                new Random(i).nextBytes(random);
                byte[] payload = Arrays.copyOf(random, payloadBytes);
                lander.accept(new BrokerPush(Fakes.payload(payload), () -> Fakes.context("app"), () -> 30_000));
                if (i % 100 == 99) {
                    Thread.sleep(5);  // so that the lander takes most of them
                }
            }
            Thread.sleep(500);
            long grown = heapBytes() - before;
            System.out.printf("%s, %d pushes of %d bytes, none acknowledged: %.1f MiB of heap%n", codec, pushes, payloadBytes, grown / 1048576.0);

            long buffer = Long.parseLong(settings.producer.get("buffer.memory"));
            assertTrue(grown <= settings.queueBytes + buffer + MIB, "the heap grew by " + grown + " bytes");
            Ledger.Snapshot counts = ledger.snapshot();
            long dropped = counts.dropped.get(DropReason.QUEUE_FULL);
            assertTrue(dropped > 0);
            assertEquals(0, counts.landed);
            assertEquals(pushes, counts.queueDepth() + dropped);
            lander.close();
            // The producer's thread may count its last push a moment after an interrupted close.
            Fakes.await(() -> ledger.snapshot().queueDepth() == 0 && lander.queuedBytes() == 0);
        }
    }

    @Test
    void whatWasDroppedForLackOfRoomIsAcceptedAgainAfterAnAnswer() throws Exception {
        for (Exception answer : new Exception[] {null, new TimeoutException("expired")}) {
            SilentProducer producer = new SilentProducer();
            Rig rig = new Rig(Fakes.settings("queue.records", "2"), producer);
            rig.lander.start();
            push(rig, producer, 3, 100, "app");
            assertEquals(1, rig.dropped(DropReason.QUEUE_FULL));
            producer.answer(answer);
            push(rig, producer, 2, 100, "app");

            assertEquals(2, rig.dropped(DropReason.QUEUE_FULL));
            assertEquals(2, rig.ledger.snapshot().queueDepth());
            rig.lander.close();
        }
    }

    @Test
    void pushTooLargeForTheTopicGivesItsPayloadBackBeforeItsHeadersLand() throws Exception {
        SilentProducer producer = new SilentProducer();
        Rig rig = new Rig(Fakes.settings(), producer);
        rig.lander.start();
        push(rig, producer, 1, 0, "app");
        long empty = rig.lander.queuedBytes();
        push(rig, producer, 1, 50_000, "app");
        assertEquals(2 * empty + 50_000, rig.lander.queuedBytes());
        producer.answer(null);
        producer.answer(new RecordTooLargeException());
        Fakes.await(() -> producer.callbacks.size() == 1);

        assertEquals(empty, rig.lander.queuedBytes());
        assertEquals(1, rig.lander.queuedRecords());
        producer.answer(null);
        assertEquals(0, rig.lander.queuedBytes());
        assertEquals(0, rig.lander.queuedRecords());
        assertEquals(1, rig.dropped(DropReason.TOO_LARGE));
        rig.lander.close();
    }

    @Test
    void textsThatFindNoRoomDropThePush() {
        String least = String.valueOf(LanderSettings.RECORD_HEADROOM_BYTES + 1000);
        Rig rig = new Rig(Fakes.settings("queue.bytes", least, "payload.max.bytes", "1000"), new SilentProducer());
        String text = "x".repeat(1024);
        for (int i = 0; i < 10; i++) {  // each counts 2 texts of 5,120 bytes and 3 KiB
            rig.lander.accept(new BrokerPush(Fakes.payload(new byte[0]), () -> Fakes.context(text, text), () -> 30_000));
        }

        assertEquals(6, rig.dropped(DropReason.QUEUE_FULL));
        assertEquals(4, rig.lander.queuedRecords());
        assertTrue(rig.lander.queuedBytes() <= Long.parseLong(least));
    }
}
