package io.github.kafkatelemetrylake.receiver;

import java.nio.charset.StandardCharsets;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Headers;

/** Creates the landing record of a push: key, value and headers that the ingest job reads (docs/receiver.md). */
final class LandingRecords {
    static final String RECORD_VERSION = "1";

    private final String topic;
    private final BrokerIdentity broker;
    private final PayloadCompression compression;

    LandingRecords(String topic, BrokerIdentity broker, PayloadCompression compression) {
        this.topic = topic;
        this.broker = broker;
        this.compression = compression;
    }

    /** Compresses the value if the setting requires it, the client's bytes are uncompressed, and they get fewer. */
    ProducerRecord<byte[], byte[]> of(Push push) {
        PayloadCompression.Value value = value(push);
        String instanceId = push.clientInstanceId.toString();
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, utf8(instanceId), value.bytes);
        Headers headers = record.headers();
        add(headers, "record_version", RECORD_VERSION);
        add(headers, "client_instance_id", instanceId);
        add(headers, "client_id", push.clientId);
        add(headers, "terminating", push.terminating);
        add(headers, "content_type", push.contentType);
        add(headers, "compression_type", value.codec);
        add(headers, "subscription_id", push.subscriptionId);
        add(headers, "push_interval_ms", push.pushIntervalMs);
        add(headers, "principal", push.principal);
        add(headers, "listener", push.listener);
        add(headers, "security_protocol", push.securityProtocol);
        add(headers, "client_address", push.clientAddress);
        add(headers, "client_port", push.clientPort);
        add(headers, "client_software_name", push.softwareName);
        add(headers, "client_software_version", push.softwareVersion);
        add(headers, "broker_id", broker.brokerId());
        // A broker is of one cluster; outside of one, each push is of its own or of one that isn't known yet.
        add(headers, "cluster_id", broker.brokerId() == null ? push.clusterId : broker.clusterId());
        add(headers, "received_at_ms", push.receivedAtMs);
        add(headers, "correlation_id", push.correlationId);
        if (push.isHeadersOnly()) {
            add(headers, "dropped", DropReason.TOO_LARGE);
        }
        add(headers, "payload_bytes", push.payloadBytes);
        return record;
    }

    private PayloadCompression.Value value(Push push) {
        if (push.isHeadersOnly()) {
            return new PayloadCompression.Value(new byte[0], PayloadCompression.NONE);
        }
        if (!push.compressionType.equals(PayloadCompression.NONE)) {
            return new PayloadCompression.Value(push.payload, push.compressionType);
        }
        return compression.compress(push.payload);
    }

    private static void add(Headers headers, String name, Object value) {
        if (value != null) {
            headers.add(name, utf8(value.toString()));
        }
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
