package io.github.kafkatelemetrylake.receiver;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import com.github.luben.zstd.Zstd;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.junit.jupiter.api.Test;

class LandingRecordsTest {
    private static final byte[] BYTES = {1, 2, 3};

    private final LandingRecords records =
            new LandingRecords("client-telemetry", Fakes.broker(), new PayloadCompression("none"));

    private static Push push(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        return Fakes.push(context, payload, 30_000, 64);
    }

    @Test
    void recordHoldsKeyValueAndEveryHeader() {
        Push push = push(Fakes.context("app-ä"), Fakes.payload(BYTES));
        ProducerRecord<byte[], byte[]> record = records.of(push);

        assertEquals("client-telemetry", record.topic());
        assertEquals("jHecHqLPQj2rnaP7QRzrmg", new String(record.key(), StandardCharsets.UTF_8));
        assertArrayEquals(BYTES, record.value());
        assertEquals(
                List.of(
                        Map.entry("record_version", "1"),
                        Map.entry("client_instance_id", "jHecHqLPQj2rnaP7QRzrmg"),
                        Map.entry("client_id", "app-ä"),
                        Map.entry("terminating", "true"),
                        Map.entry("content_type", "OTLP"),
                        Map.entry("compression_type", "none"),
                        Map.entry("push_interval_ms", "30000"),
                        Map.entry("principal", "User:ann"),
                        Map.entry("listener", "EXTERNAL"),
                        Map.entry("security_protocol", "SASL_SSL"),
                        Map.entry("client_address", "127.0.0.1"),
                        Map.entry("client_port", "40088"),
                        Map.entry("client_software_name", "apache-kafka-java"),
                        Map.entry("client_software_version", "4.3.1"),
                        Map.entry("broker_id", "1"),
                        Map.entry("cluster_id", "3av1eYO0TP6eJFWzDROMnQ"),
                        Map.entry("received_at_ms", String.valueOf(push.receivedAtMs)),
                        Map.entry("correlation_id", "77"),
                        Map.entry("payload_bytes", "3")),
                List.copyOf(Fakes.headers(record).entrySet()));
    }

    @Test
    void whatTheBrokerDoesNotTellIsLeftOut() {
        Push push = Fakes.push(new ForeignContext(), Fakes.payload(BYTES), null, 64);
        Map<String, String> headers = Fakes.headers(records.of(push));

        for (String name : List.of("client_id", "principal", "listener", "security_protocol", "client_address",
                "client_port", "client_software_name", "client_software_version", "push_interval_ms")) {
            assertFalse(headers.containsKey(name), name);
        }
        assertEquals("5", headers.get("correlation_id"));
    }

    /** The receiver in a proxy has many clusters; that of one client is unknown until its brokers have sent it. */
    @Test
    void aPushOutsideOfABrokerIsOfNoOtherPushsCluster() {
        BrokerIdentity proxy = new BrokerIdentity();
        proxy.clusterId("another-cluster");
        LandingRecords records = new LandingRecords("client-telemetry", proxy, new PayloadCompression("none"));

        assertFalse(Fakes.headers(records.of(push(Fakes.context("app"), Fakes.payload(BYTES)))).containsKey("cluster_id"));
    }

    @Test
    void headersOnlyHasEmptyValueAndTheLostSize() {
        ProducerRecord<byte[], byte[]> record = records.of(push(Fakes.context("app"), Fakes.payload(BYTES)).headersOnly());

        assertEquals(0, record.value().length);
        Map<String, String> headers = Fakes.headers(record);
        assertEquals("too_large", headers.get("dropped"));
        assertEquals("3", headers.get("payload_bytes"));
        assertEquals("none", headers.get("compression_type"));
        assertEquals("app", headers.get("client_id"));
    }

    @Test
    void missingPayloadLandsEmptyNotNull() {
        ProducerRecord<byte[], byte[]> record = records.of(push(Fakes.context("app"), Fakes.payload((ByteBuffer) null)));

        assertEquals(0, record.value().length);
        assertFalse(Fakes.headers(record).containsKey("dropped"));
    }

    @Test
    void borrowedBuffersAreCopiedFromTheirPositionAndLeftAsTheyAre() {
        ByteBuffer direct = ByteBuffer.allocateDirect(10);
        direct.put(new byte[] {9, 9, 1, 2, 3, 9}).position(2).limit(5);
        ByteBuffer slice = ByteBuffer.wrap(new byte[] {9, 9, 9, 1, 2, 3, 9}, 2, 4).slice().position(1);
        ByteBuffer readOnly = ByteBuffer.wrap(new byte[] {9, 1, 2, 3, 9, 9}, 1, 3).asReadOnlyBuffer();
        for (ByteBuffer buffer : List.of(direct, slice, readOnly)) {
            int position = buffer.position();
            Push push = push(Fakes.context("app"), Fakes.payload(buffer));

            assertArrayEquals(BYTES, push.payload);
            assertEquals(position, buffer.position());
        }
    }

    @Test
    void theCopyDoesNotSeeLaterWrites() {
        byte[] array = {1, 2, 3};
        Push push = push(Fakes.context("app"), Fakes.payload(array));
        array[0] = 9;

        assertArrayEquals(BYTES, push.payload);
    }

    @Test
    void longTextIsCutBetweenCharacters() {
        String cut = Push.cut("x" + "é€😀".repeat(100), 64);

        assertEquals(64, cut.getBytes(StandardCharsets.UTF_8).length);
        assertEquals("x" + "é€😀".repeat(7), cut);
        assertEquals("aé", Push.cut("aé€", 4));  // € would end at byte 6
        assertEquals("aé", Push.cut("aé", 3));
        Push push = push(Fakes.context("c".repeat(30_000)), Fakes.payload(BYTES));
        assertEquals("c".repeat(64), push.clientId);
    }

    @Test
    void compressedPayloadOfAnotherBrokerLandsAsItIs() {
        LandingRecords compressing =
                new LandingRecords("client-telemetry", Fakes.broker(), new PayloadCompression("gzip"));
        ProducerRecord<byte[], byte[]> record =
                compressing.of(push(Fakes.context("app"), new CompressedPayload(ByteBuffer.wrap(BYTES))));

        assertArrayEquals(BYTES, record.value());
        assertEquals("zstd", Fakes.headers(record).get("compression_type"));
    }

    @Test
    void valueIsCompressedAndPayloadBytesAreOfWhatTheBrokerPassed() {
        LandingRecords compressing =
                new LandingRecords("client-telemetry", Fakes.broker(), new PayloadCompression("zstd"));
        byte[] plain = "org.apache.kafka.producer.".repeat(100).getBytes(StandardCharsets.UTF_8);
        ProducerRecord<byte[], byte[]> record = compressing.of(push(Fakes.context("app"), Fakes.payload(plain)));

        assertArrayEquals(plain, Zstd.decompress(record.value(), plain.length));
        Map<String, String> headers = Fakes.headers(record);
        assertEquals("zstd", headers.get("compression_type"));
        assertEquals("2600", headers.get("payload_bytes"));
        assertEquals("1", headers.get("record_version"));
    }

    /** The client's own frame inside another one would be no push for any reader. */
    @Test
    void frameOfTheClientIsNotCompressedAgain() {
        LandingRecords compressing =
                new LandingRecords("client-telemetry", Fakes.broker(), new PayloadCompression("zstd"));
        byte[] frame = Zstd.compress("org.apache.kafka.producer.".repeat(100).getBytes(StandardCharsets.UTF_8));
        for (boolean said : new boolean[] {true, false}) {
            ByteBuffer data = ByteBuffer.wrap(frame);
            ProducerRecord<byte[], byte[]> record = compressing.of(
                    push(Fakes.context("app"), said ? new CompressedPayload(data) : Fakes.payload(data)));

            assertArrayEquals(frame, record.value());
            assertEquals(said ? "zstd" : "none", Fakes.headers(record).get("compression_type"));
        }
    }

    /** A broker's payload with an additional method that Kafka's interface lacks. */
    private static final class CompressedPayload extends Fakes.Payload {
        CompressedPayload(ByteBuffer data) {
            super(data);
        }

        @SuppressWarnings("unused")  // by reflection
        public String compressionType() {
            return "ZSTD";
        }
    }

    /** A context that is not the broker's own class and has no values. */
    private static final class ForeignContext implements AuthorizableRequestContext {
        @Override
        public String listenerName() {
            return null;
        }

        @Override
        public org.apache.kafka.common.security.auth.SecurityProtocol securityProtocol() {
            return null;
        }

        @Override
        public org.apache.kafka.common.security.auth.KafkaPrincipal principal() {
            return null;
        }

        @Override
        public java.net.InetAddress clientAddress() {
            return null;
        }

        @Override
        public int requestType() {
            return 72;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return null;
        }

        @Override
        public int correlationId() {
            return 5;
        }
    }
}
