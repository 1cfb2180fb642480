package io.github.kafkatelemetrylake.receiver;

import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** Entry class for Kafka 3.7 to 4.1 (KIP-714): {@code metric.reporters} names it. */
@SuppressWarnings("removal")  // gone in Kafka 5.0, and this class with it; the exporter does not need it
public final class ClientTelemetryLakeReceiver extends LanderReporter implements ClientTelemetry {
    @Override
    public ClientTelemetryReceiver clientReceiver() {
        Lander lander = lander();
        return (context, payload) -> lander.accept(payload, () -> context, () -> null);
    }
}
