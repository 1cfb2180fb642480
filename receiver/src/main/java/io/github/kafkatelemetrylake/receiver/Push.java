package io.github.kafkatelemetrylake.receiver;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/**
 * One PushTelemetry request as the broker passed it, as a copy that does not refer to the request.
 *
 * <p>Text that the broker does not provide is null. Client-supplied text is truncated to the header limit here, so that a
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
    final Integer pushIntervalMs;
    final String clientId;
    final String principal;
    final String listener;
    final String securityProtocol;
    final String clientAddress;
    final Integer clientPort;
    final String softwareName;
    final String softwareVersion;
    final int correlationId;
    final long receivedAtMs;
    final long receivedNanos;
    /** Size of the payload as the broker passed it, in bytes. */
    final int payloadBytes;
    /** The metrics bytes; null if only the headers are to land. */
    final byte[] payload;

    /**
     * Copies the required parts of the request.
     *
     * @param pushIntervalMs null if the broker does not provide it (before 4.2)
     * @param withPayload whether to copy the payload itself
     * @param headerMaxBytes limit of one string, in bytes of UTF-8
     */
    Push(
            AuthorizableRequestContext context,
            ClientTelemetryPayload pushed,
            Integer pushIntervalMs,
            boolean withPayload,
            int headerMaxBytes) {
        receivedAtMs = System.currentTimeMillis();
        receivedNanos = System.nanoTime();
        clientInstanceId = pushed.clientInstanceId();
        terminating = pushed.isTerminating();
        contentType = cut(pushed.contentType(), headerMaxBytes);
        compressionType = cut(PayloadDetails.compressionType(pushed), headerMaxBytes);
        this.pushIntervalMs = pushIntervalMs;
        clientId = cut(context.clientId(), headerMaxBytes);
        principal = context.principal() == null ? null : cut(context.principal().toString(), headerMaxBytes);
        listener = context.listenerName();
        securityProtocol = context.securityProtocol() == null ? null : context.securityProtocol().name;
        clientAddress = context.clientAddress() == null ? null : context.clientAddress().getHostAddress();
        correlationId = context.correlationId();
        ConnectionDetails connection = ConnectionDetails.of(context);
        clientPort = connection.clientPort;
        softwareName = cut(connection.softwareName, headerMaxBytes);
        softwareVersion = cut(connection.softwareVersion, headerMaxBytes);
        ByteBuffer data = pushed.data();
        payloadBytes = data == null ? 0 : data.remaining();
        payload = withPayload ? copy(data) : null;
    }

    private Push(Push other) {
        clientInstanceId = other.clientInstanceId;
        terminating = other.terminating;
        contentType = other.contentType;
        compressionType = other.compressionType;
        pushIntervalMs = other.pushIntervalMs;
        clientId = other.clientId;
        principal = other.principal;
        listener = other.listener;
        securityProtocol = other.securityProtocol;
        clientAddress = other.clientAddress;
        clientPort = other.clientPort;
        softwareName = other.softwareName;
        softwareVersion = other.softwareVersion;
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
