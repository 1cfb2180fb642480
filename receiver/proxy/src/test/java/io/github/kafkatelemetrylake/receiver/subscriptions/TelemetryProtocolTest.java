package io.github.kafkatelemetrylake.receiver.subscriptions;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.kafkatelemetrylake.receiver.subscriptions.TelemetryProtocol.SubscriptionsAnswer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32C;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Errors;
import org.junit.jupiter.api.Test;

class TelemetryProtocolTest {
    private static final Uuid ID = Uuid.fromString("jHecHqLPQj2rnaP7QRzrmg");
    private static final TelemetryClient JAVA = new TelemetryClient("orders-1", "apache-kafka-java", "4.3.1");
    private static final int MAX_BYTES = 1_000;
    private static final int ZSTD = 4;

    private final AtomicLong now = new AtomicLong(5);
    private final TelemetryProtocol protocol = new TelemetryProtocol(MAX_BYTES, 3, now::get);

    TelemetryProtocolTest() {
        protocol.subscribe(List.of(subscription("all", 1_000, Map.of(), "*")));
    }

    private static Subscription subscription(String name, int intervalMs, Map<String, String> match, String... metrics) {
        return new Subscription(name, List.of(metrics), intervalMs, match);
    }

    private Errors push(int subscriptionId) {
        return push(subscriptionId, false, 10);
    }

    private Errors push(int subscriptionId, boolean terminating, int bytes) {
        return protocol.push(ID, JAVA, subscriptionId, terminating, ZSTD, bytes).error;
    }

    @Test
    void theZeroIdGetsOneOfItsOwn() {
        SubscriptionsAnswer answer = protocol.get(Uuid.ZERO_UUID, JAVA);

        assertEquals(Errors.NONE, answer.error);
        assertFalse(Uuid.RESERVED.contains(answer.clientInstanceId));
        assertEquals(List.of("*"), answer.requestedMetrics);
        assertEquals(1_000, answer.pushIntervalMs);
        assertEquals(MAX_BYTES, answer.telemetryMaxBytes);
        assertNotEquals(answer.clientInstanceId, protocol.get(Uuid.ZERO_UUID, JAVA).clientInstanceId);
        assertEquals(ID, protocol.get(ID, JAVA).clientInstanceId);
    }

    @Test
    void theSubscriptionIdIsAFunctionOfMetricsIntervalAndInstance() {
        CRC32C checksum = new CRC32C();
        checksum.update("[*]1000".getBytes(StandardCharsets.UTF_8));
        int expected = (int) checksum.getValue() ^ ID.hashCode();
        assertEquals(expected, protocol.get(ID, JAVA).subscriptionId);

        TelemetryProtocol other = new TelemetryProtocol(MAX_BYTES, 3, now::get);
        other.subscribe(List.of(subscription("b", 1_000, Map.of(), "*"), subscription("a", 2_000, Map.of(), "z.")));
        assertEquals(Errors.NONE, other.push(ID, JAVA, expected, false, ZSTD, 10).error);
    }

    @Test
    void theOrderOfSubscriptionsAndMetricsDoesNotChangeTheId() {
        String[] names = new String[40];
        String[] reversed = new String[40];
        for (int i = 0; i < 40; i++) {
            names[i] = "org.apache.kafka.metric." + i;
            reversed[39 - i] = names[i];
        }
        protocol.subscribe(List.of(subscription("a", 1_000, Map.of(), names)));
        int first = protocol.get(ID, JAVA).subscriptionId;
        protocol.subscribe(List.of(
                subscription("b", 1_000, Map.of(), reversed), subscription("c", 1_000, Map.of(), names[7])));
        assertEquals(first, protocol.get(ID, JAVA).subscriptionId);
    }

    @Test
    void allThatMatchIsAskedAtTheShortestInterval() {
        protocol.subscribe(List.of(
                subscription("a", 4_000, Map.of("client_id", "orders-\\d"), "a."),
                subscription("b", 3_000, Map.of("client_software_name", "apache-.*", "client_software_version", "4\\..*"), "b."),
                subscription("c", 2_000, Map.of("client_id", "orders"), "c."),  // not the whole id
                subscription("d", 2_000, Map.of("client_source_address", ".*"), "d."),  // unknown here
                subscription("e", 2_000, Map.of("client_instance_id", ID + "x"), "e.")));
        SubscriptionsAnswer answer = protocol.get(ID, JAVA);

        assertEquals(Set.of("a.", "b."), Set.copyOf(answer.requestedMetrics));
        assertEquals(3_000, answer.pushIntervalMs);
        SubscriptionsAnswer nothing = protocol.get(Uuid.ZERO_UUID, new TelemetryClient(null, null, null));
        assertEquals(List.of(), nothing.requestedMetrics);
        assertEquals(300_000, nothing.pushIntervalMs);
    }

    @Test
    void franzGoGetsAPrefixForAllMetricsUnderTheSameId() {
        SubscriptionsAnswer go = protocol.get(ID, new TelemetryClient("a", "kgo", "1.22"));

        assertEquals(List.of("org.apache.kafka."), go.requestedMetrics);
        TelemetryProtocol other = new TelemetryProtocol(MAX_BYTES, 3, now::get);
        other.subscribe(List.of(subscription("all", 1_000, Map.of(), "*")));
        assertEquals(other.get(ID, JAVA).subscriptionId, go.subscriptionId);
    }

    @Test
    void anotherQuestionComesAnIntervalLater() {
        protocol.get(ID, JAVA);
        now.addAndGet(999);
        assertEquals(Errors.THROTTLING_QUOTA_EXCEEDED, protocol.get(ID, JAVA).error);
        now.addAndGet(1);
        assertEquals(Errors.NONE, protocol.get(ID, JAVA).error);
    }

    @Test
    void aPushComesAtOnceAfterTheAnswerAndThenAnIntervalLater() {
        int id = protocol.get(ID, JAVA).subscriptionId;
        now.addAndGet(1);
        assertEquals(Errors.NONE, push(id));
        now.addAndGet(999);
        assertEquals(Errors.THROTTLING_QUOTA_EXCEEDED, push(id));
        now.addAndGet(1);
        assertEquals(Errors.NONE, push(id));
        now.addAndGet(1);
        assertEquals(Errors.NONE, push(id, true, 10));  // the last one may come at any time
    }

    @Test
    void nothingComesAfterTheTerminatingPush() {
        int id = protocol.get(ID, JAVA).subscriptionId;
        assertEquals(Errors.NONE, push(id, true, 0));
        assertEquals(Errors.INVALID_REQUEST, push(id, true, 0));
        now.addAndGet(1_000);
        assertEquals(Errors.INVALID_REQUEST, push(id));
    }

    @Test
    void aChangedSubscriptionIsAskedForAtOnce() {
        int id = protocol.get(ID, JAVA).subscriptionId;
        push(id);
        assertTrue(protocol.subscribe(List.of(subscription("all", 1_000, Map.of(), "a."))));
        assertFalse(protocol.subscribe(List.of(subscription("all", 1_000, Map.of(), "a."))));
        now.addAndGet(1);
        assertEquals(Errors.UNKNOWN_SUBSCRIPTION_ID, push(id));
        SubscriptionsAnswer answer = protocol.get(ID, JAVA);
        assertEquals(Errors.NONE, answer.error);
        assertEquals(List.of("a."), answer.requestedMetrics);
        now.addAndGet(1_000);
        assertEquals(Errors.NONE, push(answer.subscriptionId));
    }

    @Test
    void whatIsWrongWithAPushIsSaid() {
        int id = protocol.get(ID, JAVA).subscriptionId;
        assertEquals(Errors.TELEMETRY_TOO_LARGE, push(id, false, MAX_BYTES + 1));
        now.addAndGet(1_000);
        assertEquals(Errors.NONE, push(id, false, MAX_BYTES));
        now.addAndGet(1_000);
        assertEquals(Errors.UNSUPPORTED_COMPRESSION_TYPE, protocol.push(ID, JAVA, id, false, 5, 1).error);
        assertEquals(Errors.NONE, protocol.get(ID, JAVA).error);  // at once, to learn the codecs
        now.addAndGet(1_000);
        assertEquals(Errors.UNSUPPORTED_COMPRESSION_TYPE, protocol.push(ID, JAVA, id, false, -1, 1).error);
        for (Uuid none : Uuid.RESERVED) {
            assertEquals(Errors.INVALID_REQUEST, protocol.push(none, JAVA, id, false, ZSTD, 1).error);
        }
    }

    @Test
    void aPushTellsTheIntervalInForce() {
        assertEquals(1_000, protocol.push(ID, JAVA, 0, false, ZSTD, 1).pushIntervalMs);
    }

    @Test
    void aClientThatNeverAskedMayPushIfItKnowsTheId() {
        int id = protocol.get(ID, JAVA).subscriptionId;
        TelemetryProtocol afterARestart = new TelemetryProtocol(MAX_BYTES, 3, now::get);
        afterARestart.subscribe(List.of(subscription("all", 1_000, Map.of(), "*")));
        assertEquals(Errors.NONE, afterARestart.push(ID, JAVA, id, false, ZSTD, 1).error);
        assertEquals(Errors.UNKNOWN_SUBSCRIPTION_ID, protocol.push(Uuid.randomUuid(), JAVA, id, false, ZSTD, 1).error);
    }

    @Test
    void instancesAreForgottenAfterSilenceAndTheLongestSilentFirst() {
        int id = protocol.get(ID, JAVA).subscriptionId;
        push(id, true, 0);
        now.addAndGet(TelemetryProtocol.LEAST_EXPIRY_MS - 1);
        assertEquals(Errors.INVALID_REQUEST, push(id, true, 0));
        now.addAndGet(TelemetryProtocol.LEAST_EXPIRY_MS);
        assertEquals(Errors.NONE, push(id, true, 0));  // as a new one
        for (int i = 0; i < 3; i++) {
            protocol.get(Uuid.ZERO_UUID, JAVA);
        }
        assertEquals(3, protocol.instances());
        assertEquals(Errors.NONE, push(id, true, 0));  // pushed out, new again
        now.addAndGet(2 * TelemetryProtocol.LEAST_EXPIRY_MS);
        protocol.get(ID, JAVA);
        assertEquals(1, protocol.instances());
    }

    @Test
    void aLongIntervalKeepsAnInstanceForThreeOfThem() {
        protocol.subscribe(List.of(subscription("all", 100_000, Map.of(), "*")));
        int id = protocol.get(ID, JAVA).subscriptionId;
        push(id, true, 0);
        now.addAndGet(299_999);
        assertEquals(Errors.INVALID_REQUEST, push(id, true, 0));
    }

    @Test
    void configurationsOfBrokersAreReadAsTheyDo() {
        Subscription read = Subscription.ofConfig("a", Map.of(
                "metrics", "x. , y.", "interval.ms", " 200 ", "match", "client_id = a.*b,client_software_name=kgo"));
        assertEquals(List.of("x.", "y."), read.metrics);
        assertEquals(200, read.intervalMs);
        assertTrue(read.matches(Map.of("client_id", "a-b", "client_software_name", "kgo")));
        assertFalse(read.matches(Map.of("client_id", "a-b")));
        Subscription defaults = Subscription.ofConfig("a", Map.of());
        assertEquals(List.of(), defaults.metrics);
        assertEquals(300_000, defaults.intervalMs);
        assertTrue(defaults.matches(Map.of()));
    }

    @Test
    void whatBrokersRefuseIsRefused() {
        assertRefused("interval.ms: got 99, allowed: 100 to 3600000", Map.of("interval.ms", "99"));
        assertRefused("got key color, allowed: metrics, interval.ms, match", Map.of("color", "red"));
        assertRefused("match: got key user, allowed: client_instance_id", Map.of("match", "user=a"));
        assertRefused("match: client_id: got (, allowed: a Java regular expression", Map.of("match", "client_id=("));
        assertRefused("match: got client_id, allowed: key=pattern", Map.of("match", "client_id"));
        assertThrows(IllegalArgumentException.class, () -> Subscription.ofConfig("a", Map.of("interval.ms", "soon")));
        assertThrows(IllegalArgumentException.class, () -> Subscription.ofConfig("", Map.of()));
    }

    private static void assertRefused(String message, Map<String, String> config) {
        String said = assertThrows(IllegalArgumentException.class, () -> Subscription.ofConfig("s", config)).getMessage();
        assertTrue(said.startsWith("subscription s: ") && said.contains(message), said);
    }
}
