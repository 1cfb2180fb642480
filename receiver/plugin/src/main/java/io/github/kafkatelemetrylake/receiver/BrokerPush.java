package io.github.kafkatelemetrylake.receiver;

import java.nio.ByteBuffer;
import java.util.function.Supplier;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/** A push as a broker passes it to its plugin. */
final class BrokerPush implements PushRequest {
    private final ClientTelemetryPayload payload;
    private final Supplier<AuthorizableRequestContext> context;
    private final Supplier<Integer> pushIntervalMs;

    /**
     * Refers to the request; nothing of it is read yet.
     *
     * @param pushIntervalMs returns null if the broker does not provide it (before 4.2)
     */
    BrokerPush(
            ClientTelemetryPayload payload,
            Supplier<AuthorizableRequestContext> context,
            Supplier<Integer> pushIntervalMs) {
        this.payload = payload;
        this.context = context;
        this.pushIntervalMs = pushIntervalMs;
    }

    @Override
    public ByteBuffer data() {
        return payload.data();
    }

    @Override
    public PushDetails details() {
        AuthorizableRequestContext request = context.get();
        ConnectionDetails connection = ConnectionDetails.of(request);
        PushDetails details = new PushDetails();
        details.clientInstanceId = payload.clientInstanceId();
        details.terminating = payload.isTerminating();
        details.contentType = payload.contentType();
        details.compressionType = PayloadDetails.compressionType(payload);
        details.pushIntervalMs = pushIntervalMs.get();
        details.clientId = request.clientId();
        details.principal = request.principal() == null ? null : request.principal().toString();
        details.listener = request.listenerName();
        details.securityProtocol = request.securityProtocol() == null ? null : request.securityProtocol().name;
        details.clientAddress = request.clientAddress() == null ? null : request.clientAddress().getHostAddress();
        details.clientPort = connection.clientPort;
        details.softwareName = connection.softwareName;
        details.softwareVersion = connection.softwareVersion;
        details.correlationId = request.correlationId();
        return details;
    }
}
