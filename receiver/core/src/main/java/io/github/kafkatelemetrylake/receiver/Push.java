package io.github.kafkatelemetrylake.receiver;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.Uuid;

/**
 * A copy of one PushTelemetry request that does not refer to it.
 *
 * <p>Text that the receiver does not know is null. Client-supplied text is truncated to the header limit here, so that a
 * hostile client id cannot fill the queue's memory.
 */
final class Push {
    /** Heap of a push until its acknowledgement, without payload and client-supplied text: its objects, the producer's, headers. */
    static final int FIXED_BYTES = 3 * 1024;
    /** A character needs up to two bytes in its string and up to three in its header. */
    private static final int BYTES_PER_CHARACTER = 5;

    final Uuid clientInstanceId;
    final boolean terminating;
    final String contentType;
    final String compressionType;
    final Integer subscriptionId;
    final Integer pushIntervalMs;
    final String clientId;
    final String principal;
    final String listener;
    final String securityProtocol;
    final String clientAddress;
    final Integer clientPort;
    final String softwareName;
    final String softwareVersion;
    final String clusterId;
    final int correlationId;
    final long receivedAtMs;
    final long receivedNanos;
    /** Size of the payload as the receiver got it, in bytes. */
    final int payloadBytes;
    /** The metrics bytes; null if only the headers are to land. */
    final byte[] payload;

    /**
     * Copies the request.
     *
     * @param withPayload whether to copy the payload itself
     * @param headerMaxBytes limit of one string, in bytes of UTF-8
     */
    Push(PushDetails details, ByteBuffer data, boolean withPayload, int headerMaxBytes) {
        receivedAtMs = System.currentTimeMillis();
        receivedNanos = System.nanoTime();
        clientInstanceId = details.clientInstanceId;
        terminating = details.terminating;
        contentType = cut(details.contentType, headerMaxBytes);
        compressionType = cut(details.compressionType, headerMaxBytes);
        subscriptionId = details.subscriptionId;
        pushIntervalMs = details.pushIntervalMs;
        clientId = cut(details.clientId, headerMaxBytes);
        principal = cut(details.principal, headerMaxBytes);
        listener = details.listener;
        securityProtocol = details.securityProtocol;
        clientAddress = details.clientAddress;
        clientPort = details.clientPort;
        softwareName = cut(details.softwareName, headerMaxBytes);
        softwareVersion = cut(details.softwareVersion, headerMaxBytes);
        clusterId = details.clusterId;
        correlationId = details.correlationId;
        payloadBytes = data == null ? 0 : data.remaining();
        payload = withPayload ? copy(data) : null;
    }

    private Push(Push other) {
        clientInstanceId = other.clientInstanceId;
        terminating = other.terminating;
        contentType = other.contentType;
        compressionType = other.compressionType;
        subscriptionId = other.subscriptionId;
        pushIntervalMs = other.pushIntervalMs;
        clientId = other.clientId;
        principal = other.principal;
        listener = other.listener;
        securityProtocol = other.securityProtocol;
        clientAddress = other.clientAddress;
        clientPort = other.clientPort;
        softwareName = other.softwareName;
        softwareVersion = other.softwareVersion;
        clusterId = other.clusterId;
        correlationId = other.correlationId;
        receivedAtMs = other.receivedAtMs;
        receivedNanos = other.receivedNanos;
        payloadBytes = other.payloadBytes;
        payload = null;
    }

    /** The same push without its payload. */
    Push headersOnly() {
        return new Push(this);
    }

    boolean isHeadersOnly() {
        return payload == null;
    }

    /** Upper bound of the heap that this push uses until its acknowledgement, outside the producer's buffer. */
    long heapBytes() {
        return FIXED_BYTES + (payload == null ? 0 : payload.length) + BYTES_PER_CHARACTER * textLength();
    }

    private long textLength() {
        long length = 0;
        for (String text : new String[] {contentType, compressionType, clientId, principal, softwareName, softwareVersion}) {
            length += text == null ? 0 : text.length();
        }
        return length;
    }

    /** Copies the buffer, which the request and other plugins share: its position and its array must not be used. */
    private static byte[] copy(ByteBuffer data) {
        if (data == null) {
            return new byte[0];
        }
        byte[] bytes = new byte[data.remaining()];
        data.duplicate().get(bytes);
        return bytes;
    }

    /** Truncates text to a number of UTF-8 bytes, at a character boundary. */
    static String cut(String text, int maxBytes) {
        if (text == null || text.length() * 3L <= maxBytes) {
            return text;
        }
        String shorter = text.length() <= maxBytes ? text : text.substring(0, maxBytes);
        byte[] utf8 = shorter.getBytes(StandardCharsets.UTF_8);
        if (utf8.length <= maxBytes) {
            return shorter;
        }
        int end = maxBytes;
        while ((utf8[end] & 0xC0) == 0x80) {  // a continuation byte: step back to the start of its character
            end--;
        }
        return new String(utf8, 0, end, StandardCharsets.UTF_8);
    }
}
