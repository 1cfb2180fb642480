package io.github.kafkatelemetrylake.receiver;

import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;

/** Entry class for Kafka 4.2 and later (KIP-1217): {@code metric.reporters} names it. */
public final class ClientTelemetryLakeExporter extends LanderReporter implements ClientTelemetryExporterProvider {
    @Override
    public ClientTelemetryExporter clientTelemetryExporter() {
        Lander lander = lander();
        return (context, payload) ->
                lander.accept(new BrokerPush(
                        payload, () -> context.authorizableRequestContext(), () -> context.pushIntervalMs()));
    }
}
