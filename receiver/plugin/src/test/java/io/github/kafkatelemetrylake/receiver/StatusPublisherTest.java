package io.github.kafkatelemetrylake.receiver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.Supplier;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.TimeoutException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class StatusPublisherTest {
    private static final String COUNTS =
            "\"received\":7,\"landed\":2,\"dropped\":{\"queue_full\":2,\"too_large\":1,\"send_failed\":0,\"closed\":0,"
                    + "\"out_of_memory\":0,\"error\":0},\"queue_depth\":2,\"quota_samples_landed\":0,\"quota_samples_lost\":0}";

    @TempDir
    private Path dir;

    private static Ledger ledger() {
        Ledger ledger = new Ledger(1_000);
        for (int i = 0; i < 7; i++) {
            ledger.received();
        }
        ledger.landed();
        ledger.landed();
        ledger.dropped(DropReason.QUEUE_FULL);
        ledger.dropped(DropReason.QUEUE_FULL);
        ledger.dropped(DropReason.TOO_LARGE);
        return ledger;
    }

    private StatusPublisher publisher(Supplier<Producer<byte[], byte[]>> producers) {
        LanderSettings settings = Fakes.settings(
                "status.interval.ms", "100", "status.topic", "st", "status.file", file().toString());
        Ledger ledger = ledger();
        Lander lander = new Lander(settings, Fakes.broker(), ledger, producers);
        return new StatusPublisher(settings, Fakes.broker(), ledger, lander, quotas(producers), () -> null, producers);
    }

    private static QuotaSampler quotas(Supplier<Producer<byte[], byte[]>> producers) {
        return new QuotaSampler(Fakes.settings(), Fakes.broker(), producers);
    }

    private Path file() {
        return dir.resolve("last.json");
    }

    private static List<String> values(MockProducer<byte[], byte[]> producer) {
        List<String> values = new ArrayList<>();
        producer.history().forEach(record -> values.add(new String(record.value(), StandardCharsets.UTF_8)));
        return values;
    }

    @Test
    void jsonIsTheContract() {
        String json = "{\"version\":1,\"cluster_id\":\"3av1eYO0TP6eJFWzDROMnQ\",\"broker_id\":1,\"time_ms\":5000,\"started_ms\":1000,"
                + COUNTS;
        assertEquals(json, StatusRecord.json(Fakes.broker(), ledger().snapshot(), quotas(null), null, 1_000, 5_000));
        assertEquals(
                json.substring(0, json.length() - 1) + ",\"connections\":[{\"listener\":\"L\",\"connections\":3}]}",
                StatusRecord.json(
                        Fakes.broker(), ledger().snapshot(), quotas(null), "[{\"listener\":\"L\",\"connections\":3}]", 1_000, 5_000));
    }

    @Test
    void unknownBrokerIsNull() {
        assertTrue(StatusRecord.json(new BrokerIdentity(), ledger().snapshot(), quotas(null), null, 1_000, 5_000)
                .startsWith("{\"version\":1,\"cluster_id\":null,\"broker_id\":null,"));
    }

    @Test
    void aStatusLandsEachIntervalAndAtTheEnd() throws Exception {
        MockProducer<byte[], byte[]> producer = Fakes.mockProducer(true);
        StatusPublisher publisher = publisher(() -> producer);
        publisher.start();
        Fakes.await(() -> producer.history().size() >= 2);
        publisher.close();
        int sent = producer.history().size();

        assertTrue(sent >= 3, "sent " + sent);
        assertTrue(values(producer).stream().allMatch(value -> value.endsWith(COUNTS)));
        assertEquals("st", producer.history().get(0).topic());
        assertEquals("1", new String(producer.history().get(0).key(), StandardCharsets.UTF_8));
        assertTrue(producer.closed());
        assertFalse(Files.exists(file()));
    }

    @Test
    void statusesWithoutAnAnswerAreBounded() throws Exception {
        MockProducer<byte[], byte[]> producer = Fakes.mockProducer(false);
        StatusPublisher publisher = publisher(() -> producer);
        publisher.start();
        Fakes.await(() -> producer.history().size() == StatusPublisher.MAX_IN_FLIGHT);
        Thread.sleep(500);  // five intervals
        assertEquals(StatusPublisher.MAX_IN_FLIGHT, producer.history().size());
        producer.completeNext();
        Fakes.await(() -> producer.history().size() == StatusPublisher.MAX_IN_FLIGHT + 1);
        publisher.close();
    }

    @Test
    void lastStatusThatCannotLandWaitsInTheFileForTheNextStart() throws Exception {
        StatusPublisher stopping = publisher(() -> {
            throw new KafkaException("the broker is gone");
        });
        stopping.start();
        stopping.close();
        String stored = Files.readString(file());
        assertTrue(stored.endsWith(COUNTS), stored);

        List<MockProducer<byte[], byte[]>> producers = Collections.synchronizedList(new ArrayList<>());
        StatusPublisher next = publisher(() -> {
            producers.add(Fakes.mockProducer(false));
            return producers.get(0);
        });
        next.start();
        Fakes.await(() -> !producers.isEmpty() && producers.get(0).history().size() >= 2);
        MockProducer<byte[], byte[]> producer = producers.get(0);
        assertEquals(stored, values(producer).get(0));
        producer.errorNext(new TimeoutException("not this time"));
        assertTrue(Files.exists(file()));
        Fakes.await(() -> Collections.frequency(values(producer), stored) == 2);
        while (producer.completeNext()) {
            continue;
        }
        assertFalse(Files.exists(file()));
        int sent = producer.history().size();
        Fakes.await(() -> producer.history().size() >= sent + 2);
        assertEquals(2, Collections.frequency(values(producer), stored));
        next.close();
    }
}
