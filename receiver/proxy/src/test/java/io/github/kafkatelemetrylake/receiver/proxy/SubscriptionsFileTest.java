package io.github.kafkatelemetrylake.receiver.proxy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.kafkatelemetrylake.receiver.subscriptions.Subscription;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SubscriptionsFileTest {
    @TempDir
    Path folder;

    /** The file that {@code telemetry-lake sync} is shown with. */
    @Test
    void theFileOfSyncIsRead() throws IOException {
        List<Subscription> read = new SubscriptionsFile(Path.of("..", "..", "conf", "subscriptions.yml")).read();

        assertEquals(List.of(
                new Subscription("producers",
                        List.of("org.apache.kafka.producer.connection.", "org.apache.kafka.producer.record."), 60_000,
                        Map.of("client_software_name", "apache-kafka-java", "client_id", "orders-\\d+")),
                new Subscription("everything-of-one", List.of("*"), 10_000,
                        Map.of("client_instance_id", "jHecHqLPQj2rnaP7QRzrmg"))), read);
    }

    @Test
    void defaultsAreThoseOfBrokers() throws IOException {
        assertEquals(List.of(new Subscription("a", List.of(), 300_000, Map.of())), read("subscriptions: [{name: a, metrics: []}]"));
        assertEquals(List.of(), read("subscriptions: []"));
    }

    @Test
    void whatIsWrongIsNamed() {
        assertWrong("subscriptions: allowed: a list", "subscriptions: 7");
        assertWrong("subscriptions: allowed: a list", "");
        assertWrong("color: allowed: ", "{subscriptions: [], color: red}");
        assertWrong("not YAML", "{");
        assertWrong("metrics: allowed: a list of prefixes", "subscriptions: [{name: a}]");
        assertWrong("interval_ms: allowed: a whole number", "subscriptions: [{name: a, metrics: [], interval_ms: soon}]");
        assertWrong("interval.ms: got 1, allowed: 100", "subscriptions: [{name: a, metrics: [], interval_ms: 1}]");
        assertWrong("got key user", "subscriptions: [{name: a, metrics: [], match: {user: x}}]");
        assertWrong("each name once", "subscriptions: [{name: a, metrics: []}, {name: a, metrics: []}]");
        assertTrue(assertThrows(IllegalArgumentException.class, () -> new SubscriptionsFile(folder.resolve("none")).read())
                .getMessage().endsWith("none: No such file"));
    }

    private void assertWrong(String message, String text) {
        String said = assertThrows(IllegalArgumentException.class, () -> read(text)).getMessage();
        assertTrue(said.contains(message), said);
    }

    private List<Subscription> read(String text) throws IOException {
        Path file = folder.resolve("subscriptions.yml");
        Files.writeString(file, text);
        return new SubscriptionsFile(file).read();
    }
}
