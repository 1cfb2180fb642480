package io.github.kafkatelemetrylake.receiver;

import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** Entry class for Kafka 3.7 to 4.1 (KIP-714): {@code metric.reporters} names it. */
@SuppressWarnings("removal")  // Kafka 5.0 removes the API, and with it the need for this class
public final class ClientTelemetryLakeReceiver extends LanderReporter implements ClientTelemetry {
    @Override
    public ClientTelemetryReceiver clientReceiver() {
        Lander lander = lander();
        return (context, payload) -> lander.accept(new BrokerPush(payload, () -> context, () -> null));
    }
}
